"""Warnings about likely mistakes, found in pipelines without reading data."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import dropwhile, starmap
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import registry
from lazyckpt.executors.plan.segments import dealt

_LONG = 1 << 40  # items: more than any stage's `n`
_PUT_BEFORE = (
    "put {} before it (the documentation of {} says whether ranks then still share one state)"
)
_SHARE = (
    "after packing, this keeps one state for all ranks; to divide the work as well, share it with "
    "executor=lz.torch.shared(...), or plan the rows with plan_packing"
)
_MOST = 3  # stages that a warning names
_SHUFFLES = {"shuffle", "block_shuffle", "local_shuffle"}
_KEEPING = {"tap", "predicate"}  # roles of functions that leave items as they are


def warnings(chain: Chain, *, late_shards: bool = True) -> Iterator[str]:
    """Yield a sentence per warning, also for joined pipelines.

    Args:
        chain: The pipeline.
        late_shards: If False, leave out the warnings about shards after streams.
    """
    if chain.partings:
        yield (
            f"each rank has its own state, because ranks are at different positions after "
            f"{_short(chain.partings[0][0])}: save the state of every rank, or pass group= to "
            "a loader"
        )
    seeds: dict[tuple[str, str], list[str]] = defaultdict(list)
    shown: dict[tuple[str, str], Call] = {}
    for label, each in pipelines(chain):
        yield from _of_one(each)
        if late_shards:
            yield from _late_shards(each)
        for number, (call, entry) in enumerate(zip(each.calls, each.entries, strict=True), 1):
            if call.arguments.get("seed") is not None:
                key = call.name, entry.arguments
                seeds[key].append(f"{label}{number}")
                shown.setdefault(key, call)
    for key, places in seeds.items():
        if len(places) > 1:
            few = [*places[:_MOST], *["..."][: len(places) > _MOST]]
            yield (
                f"{len(places)} stages draw the same random numbers, because they have the same "
                f"seed: {_short(shown[key])} as stages {', '.join(few)}; use a different seed "
                "for each"
            )


def pipelines(chain: Chain, label: str = "") -> Iterator[tuple[str, Chain]]:
    """Yield a pipeline and the pipelines that it joins, each with the prefix of its stages."""
    yield label, chain
    for number, call in enumerate(chain.calls, 1):
        for n, inner in enumerate(call.chains):
            yield from pipelines(inner, f"{label}{number}[{n}].")


def _of_one(chain: Chain) -> Iterator[str]:
    yield from _changing_subsets(chain)
    yield from _shuffled_batches(chain)
    for call, machine in zip(chain.calls, chain.machines, strict=True):
        upstream = machine.upstream
        if upstream is not None and machine.rate.epochs == upstream.length == math.inf:
            yield f"{_short(call)} never starts again: its input is endless"


def _short(call: Call) -> str:
    """Return a stage as text, without the pipelines that it joins."""
    return f"{call.name}(...)" if call.chains else repr(call)


def _changing_subsets(chain: Chain) -> Iterator[str]:
    shuffle: Call | None = None
    for call, machine in zip(chain.calls, chain.machines, strict=True):
        if shuffle is not None and _is_fewer(machine) and _cuts(call, machine):
            yield (
                f"{call!r} yields a different subset in each epoch, because {shuffle!r} before "
                f"it uses a new order; to keep one subset, put {call.name} before {shuffle.name}"
            )
        if _is_shuffle(call):
            shuffle = call
        elif machine.length == math.inf:
            shuffle = None


def _is_shuffle(call: Call) -> bool:
    return call.name in _SHUFFLES


def _is_fewer(machine: Machine[Any]) -> bool:
    """Return whether a stage yields, or may yield, fewer items than its input has."""
    return machine.length is None or bool(machine.length != machine.upstream.length)


def _cuts(call: Call, machine: Machine[Any]) -> bool:
    """Return whether a stage drops items by their number: it counts them and yields fewer."""
    is_one_by_one = machine.rate.each == 1 and not machine.rate.whole_epoch
    if not (machine.owns and is_one_by_one and call.combinator.keeps_items) or call.covers:
        return False
    found = call.build(registry["source"].build(range(_LONG)))
    return found.length is not None and found.length < _LONG


def _shuffled_batches(chain: Chain) -> Iterator[str]:
    batch: Call | None = None
    for call, machine in zip(chain.calls, chain.machines, strict=True):
        combinator, roles = call.combinator, {*call.functions.values()}
        if _is_shuffle(call) and batch is not None:
            yield (
                f"{call!r} shuffles batches, not items: {batch!r} is before it; to mix items, "
                f"put {call.name} before {batch.name}"
            )
        if not callable(combinator.functions) and "collate" in combinator.functions.values():
            batch = call if 1 < machine.rate.each < math.inf else None
        elif not (combinator.keeps_items or combinator.pointwise or roles & _KEEPING):
            batch = None


def _late_shards(chain: Chain) -> Iterator[str]:
    before: list[tuple[Call, Machine[Any]]] = []
    for call, machine in zip(chain.calls, chain.machines, strict=True):
        upstream = machine.upstream
        if upstream is not None and machine.share.ranks > upstream.share.ranks:
            streams = [each for each, made in before if made.skip is None]
            if shuffle := next(filter(_is_shuffle, streams), None):
                yield (
                    f"every rank reads all items and drops the items of other ranks: {shuffle!r} "
                    f"has no random access, and {call!r} comes after it; put {call.name} where "
                    "there still is random access, such as directly after a source of files"
                )
            elif dealt(chain) == len(before):
                pass  # with workers too, each rank computes only its own items
            elif behind := list(dropwhile(lambda pair: not _ends_random_access(pair[1]), before)):
                (last, _), *others = behind
                packs = any(each.combinator.by_length for each, _ in behind)
                remedy = _SHARE if packs else _PUT_BEFORE.format(call.name, last.name)
                passes = last.name == "mix" and all(starmap(_passes_over, others))
                yield (
                    f"{'with workers, ' if passes else ''}every rank reads all items before "
                    f"{_short(last)}, including the items of other ranks: there is no random "
                    f"access after it, and {call!r} comes after it; {remedy}"
                )
        before.append((call, machine))


def _passes_over(call: Call, machine: Machine[Any]) -> bool:
    """Return whether a stage after a mixture can skip items without computing them."""
    return call.name == "repeat" or (call.combinator.pointwise and not machine.owns)


def _ends_random_access(machine: Machine[Any]) -> bool:
    inputs = machine.children or [each for each in [machine.upstream] if each is not None]
    return machine.skip is None and bool(inputs) and all(each.skip for each in inputs)
