"""What ranks tell each other, and what of that has to be the same on all of them."""

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

_MOST = 160  # characters of an error that another rank is told


class Report(NamedTuple):
    """What a rank says in an agreement.

    - `asks`: what for
    - `settings`: what else must be the same on all ranks, by name
    - `pipeline`: the digest of its pipeline
    - `state`: its state, as JSON
    - `items`: how many items it has delivered
    - `since`: how many of these since the last agreement; None where it has gone to a state
    - `epoch`: that of its next item
    - `ready`: how many items it has made ahead
    - `error`: what came in place of the next one, as a text
    - `has_place`: whether its state is one that it has come to
    - `past`: the agreements that it remembers, by number, each with its items since
    - `length`: how many items an epoch of it has, infinity if endless, None if unknown
    - `states`: those of new ranks at one of these, by rank
    """

    asks: str
    settings: dict[str, Any]
    pipeline: str
    state: str
    items: int
    since: int | None = None
    epoch: int = 0
    ready: int = 0
    error: str | None = None
    has_place: bool = True
    past: Sequence[tuple[int, int]] = ()
    length: float | None = None
    states: dict[str, str] | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(self).encode()

    @staticmethod
    def from_bytes(message: bytes) -> Report:
        return Report(*json.loads(message))


def pipeline_digest(pipeline: Chain) -> str:
    """What is the same on all ranks of one pipeline.

    Where it is not divided, each rank may have data of its own.
    """
    return digest(dumps(_comparable(pipeline.entries, is_divided(pipeline))))


def is_divided(pipeline: Chain) -> bool:
    """Whether each rank gets its part of the same data."""
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
    """Raise an error, on all ranks the same, which names those that differ from most."""
    _check_pipelines(reports)
    for name, asked in (
        ("do not do the same: {} asks for {}, and {} for {}", [each.asks for each in reports]),
        ("differ: {} has {}, and {} {}", [_settings(each) for each in reports]),
        (
            "are not at the same step: since they agreed, {} {}, and {} {}; load the state of one "
            "step on all",
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
    return "has gone to another state" if since is None else f"has had {since} items"


def _check_pipelines(reports: Sequence[Report]) -> None:
    odd = odd_ones([each.pipeline for each in reports])
    if not odd:
        return
    usual = next(n for n in range(len(reports)) if n not in odd)
    lines = []
    for rank in odd[:8]:
        mine, other = (State.from_json(reports[n].state).stages for n in (usual, rank))
        lines.append(f"rank {rank}, beside rank {usual}:\n{difference(mine, other).rstrip()}")
    raise StateMismatch("loader: the pipelines of the ranks differ\n" + "\n".join(lines))


def odd_ones(values: Sequence[Any]) -> list[int]:
    """Which of these differ from most of them."""
    usual = Counter(values).most_common(1)[0][0]
    return [number for number, value in enumerate(values) if value != usual]


def listed(ranks: Sequence[int]) -> str:
    """Ranks as a text: `rank 1`, `ranks 0, 1 and 4`."""
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def told(error: Exception | None) -> str | None:
    """An error as other ranks are told of it."""
    return None if error is None else cut(f"{type(error).__name__}: {error}"[:_MOST])


def failed(reports: Sequence[Report], ranks: Sequence[int]) -> RankFailed:
    """The error of a rank beside which others fail."""
    why = "; ".join(f"rank {rank}: {reports[rank].error}" for rank in ranks[:8])
    return RankFailed(f"loader: {listed(ranks)} failed; {why}", ranks)
