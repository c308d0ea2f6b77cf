"""Which stages each of several ranks runs for all items, and which only for its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from lazyckpt.core.call import Chain
from lazyckpt.executors.plan.segments import Segment, split_pipeline
from lazyckpt.executors.sharing.executor import is_dealt

Kind: TypeAlias = Literal["divided", "shareable", "repeated"]
"""What ranks do of a stage: each its part; all the same, unless they share work; all the same."""

WORDS: dict[Kind, str] = {
    "divided": "its part",
    "shareable": "all, or shared",
    "repeated": "all",
}
_SHOWN = 8  # names of stages in a sentence


def kinds(chain: Chain) -> dict[str, Kind]:
    """The kind of each stage, by its number, as in `1[0].2`."""
    segments = split_pipeline(chain, workers=2, can_stream=False)
    if chain.own_rank is not None:  # they can't share, as they are at different places
        segments = _whole(chain, works=False)
    return dict(_kinds(chain, segments, "", is_divided=False))


def _kinds(
    chain: Chain, segments: Sequence[Segment], label: str, *, is_divided: bool
) -> Iterator[tuple[str, Kind]]:
    """Those of a chain whose items, if it has no shard, each rank takes all of or its part."""
    dealing = ["num_shards" in call.arguments for call in chain.calls]
    dealt = any(is_dealt(each) for each in chain.calls[0].chains)
    works = [
        segment.has_tasks or segment.kind == "chosen"
        for segment in segments
        for _ in segment.whole_calls
    ]
    before = is_divided
    if True in dealing:
        upstream = chain.machines[dealing.index(True)].upstream
        before = upstream is None or upstream.skip is not None
    for number, (deals, works_here) in enumerate(zip(dealing, works, strict=True), 1):
        dealt = dealt or deals
        kind: Kind = "divided" if dealt or before else "shareable" if works_here else "repeated"
        yield f"{label}{number}", kind
        if number > 1 or not chain.machines[0].children:
            continue
        for n, inner in enumerate(chain.calls[0].chains):
            parts = segments[0].parts[n] if segments[0].parts else _whole(inner, works=works_here)
            is_own = parts[0].kind == "chosen" and any(dealing[: len(segments[0].calls)])
            is_divided = deals or before or is_own
            yield from _kinds(inner, parts, f"{label}1[{n}].", is_divided=is_divided)


def _whole(chain: Chain, *, works: bool) -> list[Segment]:
    """The only segment of a chain that isn't taken apart."""
    return [Segment("chunks" if works else "local", chain.calls)]


def sentence(ranks: int, names: Mapping[Kind, Sequence[str]], length: float | None) -> str:
    """What so many ranks make in sum, and what they would if they shared it."""
    both = [*names["shareable"], *names["repeated"]]
    if not both:
        return f"Each of {ranks:,} ranks makes only its own items."
    said = f"Each of {ranks:,} ranks makes all items of {_listed(both)}: {ranks:,} times the work"
    if length is not None and length < math.inf:
        said += f" and {ranks * length:,.0f} source items read in an epoch of {length:,.0f}."
    else:
        said += " and the bytes read."
    if not names["shareable"]:
        return f"{said} Sharing would save none of it."
    said += (
        f" Shared, {_listed(names['shareable'])} would run once: 1/{ranks:,} on each rank, "
        f"which would receive the other {ranks - 1:,}/{ranks:,} of the results."
    )
    if names["repeated"]:
        said += f" Each rank would still run {_listed(names['repeated'])} for all items."
    return said


def warning(ranks: int, names: Mapping[Kind, Sequence[str]]) -> str:
    """What to do about work that ranks repeat."""
    return (
        f"{ranks:,} ranks repeat each other's work before shard, in "
        f"{_listed(names['shareable'])}: share it by executor=lz.torch.shared(...), or do it "
        "before the training by lazyckpt convert and plan_packing, or let each rank read its "
        "own part by lanes"
    )


def _listed(names: Sequence[str]) -> str:
    each = [*dict.fromkeys(names)]
    more = [f"{len(each) - _SHOWN} more"] if len(each) > _SHOWN else []
    *others, last = [*each[:_SHOWN], *more]
    return f"{', '.join(others)} and {last}" if others else last
