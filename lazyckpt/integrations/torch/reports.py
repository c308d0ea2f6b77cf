"""Messages of an agreement, and checks that all ranks send the same in some of their fields."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import cut
from lazyckpt.core.content import Entries, digest, dumps
from lazyckpt.errors import PipelineError, RankFailed, StateMismatch
from lazyckpt.state.mismatch import difference
from lazyckpt.state.state import State

_MOST = 160  # most characters of an error in a message


class Report(NamedTuple):
    """The message of a rank in an agreement.

    - `asks`: purpose of the agreement
    - `settings`: other values that must be the same on all ranks, by name
    - `pipeline`: digest of its pipeline
    - `state`: its state, as JSON
    - `items`: number of items it has delivered
    - `since`: number of these since the last agreement; None if it has moved to a state
    - `epoch`: epoch of its next item
    - `reached`: epoch of its last item
    - `ready`: the epochs of the items it has computed ahead
    - `error`: the error in place of the next item, as a string
    - `has_position`: True if its state is a position that it has reached
    - `past`: agreements that it remembers: their numbers, and its items since each
    - `length`: number of items per epoch, infinity if endless, None if unknown
    - `states`: states of new ranks at one of these agreements, by rank
    """

    asks: str
    settings: dict[str, Any]
    pipeline: str
    state: str
    items: int
    since: int | None = None
    epoch: int = 0
    reached: int = 0
    ready: Sequence[int] = ()
    error: str | None = None
    has_position: bool = True
    past: Sequence[tuple[int, int]] = ()
    length: float | None = None
    states: dict[str, str] | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(self).encode()

    @staticmethod
    def from_bytes(message: bytes) -> Report:
        return Report(*json.loads(message))


def pipeline_digest(pipeline: Chain) -> str:
    """Return a digest that is equal on all ranks of one pipeline.

    If the pipeline is not divided, each rank may have its own data, which the digest ignores.
    """
    return digest(dumps(_comparable(pipeline.entries, is_divided(pipeline))))


def is_divided(pipeline: Chain) -> bool:
    """Return whether each rank gets its part of the same data."""
    return pipeline.machine.share.ranks > 1


def _comparable(entries: Entries, divided: bool) -> Entries:
    if divided:
        return entries
    first, *rest = entries
    inner = tuple(_comparable(each, divided) for each in first.pipelines)
    if not inner:
        first = first.with_arguments({})
    return (first._replace(pipelines=inner), *rest)


def check_alike(reports: Sequence[Report]) -> None:
    """Raise an error, the same on all ranks, that names the ranks that differ from most."""
    _check_pipelines(reports)
    for name, asked in (
        ("do different things: {} asks for {}, and {} for {}", [each.asks for each in reports]),
        ("differ: {} has {}, and {} {}", [_settings(each) for each in reports]),
        (
            "are not at the same step: since they agreed, {} {}, and {} {}; load states of the "
            "same step on all ranks",
            [_moved(each.since) for each in reports],
        ),
    ):
        if odd := odd_ones(asked):
            usual = next(n for n in range(len(asked)) if n not in odd)
            raise PipelineError(
                "loader: the ranks "
                + name.format(listed(odd), asked[odd[0]], listed([usual]), asked[usual])
            )


def _settings(report: Report) -> str:
    return ", ".join(f"{name}={value}" for name, value in report.settings.items())


def _moved(since: int | None) -> str:
    return "has moved to a different state" if since is None else f"has had {since} items"


def _check_pipelines(reports: Sequence[Report]) -> None:
    odd = odd_ones([each.pipeline for each in reports])
    if not odd:
        return
    usual = next(n for n in range(len(reports)) if n not in odd)
    lines = []
    for rank in odd[:8]:
        mine, other = (State.from_json(reports[n].state).stages for n in (usual, rank))
        lines.append(f"rank {rank}, unlike rank {usual}:\n{difference(mine, other).rstrip()}")
    raise StateMismatch("loader: the pipelines of the ranks differ\n" + "\n".join(lines))


def odd_ones(values: Sequence[Any]) -> list[int]:
    """Return the numbers of the values that differ from most of them."""
    usual = Counter(values).most_common(1)[0][0]
    return [number for number, value in enumerate(values) if value != usual]


def listed(ranks: Sequence[int]) -> str:
    """Format ranks: `rank 1`, `ranks 0, 1 and 4`."""
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def in_words(error: Exception | None) -> str | None:
    """Format an error for the other ranks."""
    return None if error is None else cut(f"{type(error).__name__}: {error}"[:_MOST])


def failed(reports: Sequence[Report], ranks: Sequence[int]) -> RankFailed:
    """Return the error of a rank on which others have failed."""
    why = "; ".join(f"rank {rank}: {reports[rank].error}" for rank in ranks[:8])
    return RankFailed(f"loader: {listed(ranks)} failed; {why}", ranks)
