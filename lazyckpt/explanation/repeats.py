"""Which stages each rank runs for all items, and what each way to run the ranks costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

from lazyckpt.core.call import Call, Chain
from lazyckpt.errors import PipelineError
from lazyckpt.executors.plan.segments import (
    Segment,
    called_after_shard,
    dealt,
    is_shared,
    split_pipeline,
)
from lazyckpt.executors.plan.tasks import SHARED_BYTES
from lazyckpt.executors.sharing.executor import check_dealt, is_dealt
from lazyckpt.executors.sharing.fetching import cut_at_shard
from lazyckpt.executors.sharing.payloads import SMALL_BYTES, TOLD_BYTES

Kind: TypeAlias = Literal["divided", "shareable", "repeated"]
"""How ranks run a stage: each rank its part, all items unless they share work, or all items."""

WORDS: dict[Kind, str] = {
    "divided": "its part",
    "shareable": "all, or shared",
    "repeated": "all",
}
_SHOWN = 8  # names of stages in a sentence


def of_ranks(chain: Chain, ranks: int) -> Chain:
    """Return a pipeline with each `shard` for one rank replaced by a `shard` for several."""

    def replaced(call: Call) -> Call:
        call = call.with_chains(partial(of_ranks, ranks=ranks))
        is_one = call.name == "shard" and call.arguments["num_shards"] == 1
        return call.replaced(num_shards=ranks) if is_one else call

    return type(chain)(tuple(map(replaced, chain.calls)))


def kinds(chain: Chain) -> dict[str, Kind]:
    """Return the kind of each stage by its number, such as `1[0].2`."""
    segments = split_pipeline(chain, workers=2, can_stream=False)
    try:
        check_dealt(chain, "", "")
    except PipelineError:  # its ranks can't share work
        segments = _whole(chain, works=False)
    return dict(_kinds(chain, segments, "", is_divided=False))


def _kinds(
    chain: Chain, segments: list[Segment], label: str, *, is_divided: bool
) -> Iterator[tuple[str, Kind]]:
    """Yield the kinds of a chain's stages.

    Without a shard in the chain, each rank takes its part of the items if `is_divided`, and
    otherwise all of them.
    """
    dealing = ["num_shards" in call.arguments for call in chain.calls]
    is_past = any(is_dealt(each) for each in chain.calls[0].chains)
    works = [is_shared(segments, call) for call in chain.calls]
    before = is_divided
    if True in dealing:
        upstream = chain.machines[dealing.index(True)].upstream
        before = upstream is None or upstream.skip is not None or dealt(chain) > 0
    late = called_after_shard(segments)
    for number, (deals, works_here) in enumerate(zip(dealing, works, strict=True), 1):
        is_past = is_past or deals
        is_own = is_past or before or id(chain.calls[number - 1]) in late
        kind: Kind = "divided" if is_own else "shareable" if works_here else "repeated"
        yield f"{label}{number}", kind
        if number > 1 or not chain.machines[0].children:
            continue
        for n, inner in enumerate(chain.calls[0].chains):
            parts = segments[0].parts[n] if segments[0].parts else _whole(inner, works=works_here)
            yield from _kinds(inner, parts, f"{label}1[{n}].", is_divided=deals or before)


def _whole(chain: Chain, *, works: bool) -> list[Segment]:
    """Return the only segment of a chain that isn't split."""
    return [Segment("chunks" if works else "local", chain.calls)]


def sentence(ranks: int, names: Mapping[Kind, Sequence[str]], length: float | None) -> str:
    """Describe the work of all ranks in sum, and the stages that sharing divides."""
    both = [*names["shareable"], *names["repeated"]]
    if not both:
        return f"Each of {ranks:,} ranks computes only its own items."
    said = (
        f"Each of {ranks:,} ranks computes all items of {_listed(both)}: {ranks:,} times the work"
    )
    if length is not None and length < math.inf:
        said += f" and {ranks * length:,.0f} source items read in an epoch of {length:,.0f}."
    else:
        said += " and the bytes read."
    if not names["shareable"]:
        return f"{said} Sharing would save none of it."
    return f"{said} Sharing divides {_listed(names['shareable'])}."


def costs(chain: Chain, ranks: int) -> tuple[tuple[str, ...], ...]:
    """Return a table of the costs of each way to run a pipeline whose ranks can share work."""
    segments = split_pipeline(chain, workers=2, can_stream=False, deals_first=False)
    found = cut_at_shard(chain, segments)
    received = "up to all items"
    if found and all(found.stays):
        received = f"its rows, {TOLD_BYTES} to {SMALL_BYTES} B per item"
    part, bound = f"1/{ranks:,}", SHARED_BYTES >> 20
    table = [
        ("cost", "to share", "other stages", "receives", "holds up to", "connections"),
        ("alone", "all", "all", "nothing", "nothing", "none"),
        ("planned", part, part, "nothing", "nothing", "none"),
        (
            'readers="node"', f"{part} per rank", "all", received, f"{2 * bound} MiB + 1 turn",
            "1 per other host or own rank",
        ),
        ('readers="rank"', part, "all", received, f"{bound} MiB + 1 turn", f"{ranks - 1:,}"),
    ]  # fmt: skip
    if any(is_dealt(each) for each in chain.calls[0].chains):
        del table[3]  # needs one shard after all joined pipelines
    return tuple(zip(*table, strict=True))


def warning(ranks: int, names: Mapping[Kind, Sequence[str]]) -> str:
    """Return a warning that ranks repeat work, with a remedy."""
    return (
        f"{ranks:,} ranks repeat each other's work before shard, in "
        f"{_listed(names['shareable'])}: share it with executor=lz.torch.shared(...), do it "
        "before training with lazyckpt convert and plan_packing, or let each rank read its "
        "own part with lanes"
    )


def _listed(names: Sequence[str]) -> str:
    each = [*dict.fromkeys(names)]
    more = [f"{len(each) - _SHOWN} more"] if len(each) > _SHOWN else []
    *others, last = [*each[:_SHOWN], *more]
    return f"{', '.join(others)} and {last}" if others else last
