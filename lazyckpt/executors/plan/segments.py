"""Split a pipeline into segments: stages that workers can run, and stages that run in order."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np

from lazyckpt.core.call import Call, Chain, is_pipelines
from lazyckpt.core.checks import Shown
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Combinator, is_copying, registry
from lazyckpt.core.show import show
from lazyckpt.executors.plan.chosen import choice_and_making, has_access, is_chosen
from lazyckpt.executors.plan.joins import draws, is_blind
from lazyckpt.failures.skipping import leaves_out


class Segment(NamedTuple):
    """Consecutive stages that run together.

    Attributes:
        kind: How the segment runs.
            "chunks": workers read from positions of their own.
            "runs": workers compute the outputs of runs of input items.
            "items": workers run the stages item by item.
            "local": one process runs the stages in order.
            "chosen": a joined pipeline; after the join, workers compute the items chosen.
        calls: The stages.
        parts: The segments of each joined pipeline, if a local segment begins with a join.
        seekable: For "runs", the number of stages that have random access.
        stays: If the items aren't looked at before `shard`, a function from an item to the form
            in which its maker keeps it: itself, or a `Cut` if its length is needed. Otherwise None.
    """

    kind: Literal["chunks", "runs", "items", "local", "chosen"]
    calls: tuple[Call, ...]
    parts: tuple[list[Segment], ...] = ()
    seekable: int = 0
    stays: Callable[[Any], Any] | None = None

    @property
    def is_local(self) -> bool:
        """Whether workers run none of it."""
        return self.kind == "local" and not self.parts

    @property
    def has_tasks(self) -> bool:
        """Whether workers have tasks for this segment."""
        return self.kind not in ("local", "chosen")

    @property
    def whole_calls(self) -> tuple[Call, ...]:
        """The stages; a stage that is split belongs to the segment with its first part."""
        first = [call for call in self.calls if not (isinstance(call, _Half) and call.is_last)]
        return tuple(map(_whole, first))

    @property
    def shown(self) -> tuple[str, ...]:
        """The stages as text; in place of a composite that is split, the stages inside."""
        calls = [call for call in self.calls if not call.covers]
        if self.parts:  # the joined pipelines have lines of their own
            calls[0] = without_pipelines(calls[0])
        shown = [call.shown if isinstance(call, _Half) else repr(call) for call in calls]
        return tuple(filter(None, shown))


def split_pipeline(
    chain: Chain, *, workers: int, can_stream: bool, deals_first: bool = True
) -> list[Segment]:
    """Split a pipeline into segments, in order.

    Args:
        chain: The pipeline.
        workers: Number of workers.
        can_stream: If True, one worker can read a stream from end to end.
        deals_first: If True, functions just before `shard` are called after it, for items of this
            rank only.
    """
    whole = [Segment("chunks", chain.calls)]
    if chain.machine.skip is not None:
        return whole
    segments = _split(chain, deals_first=deals_first)
    is_one = workers == 1 and [each.kind for each in segments] != ["runs"]
    is_stream = is_one or all(each.is_local for each in segments)
    return whole if can_stream and is_stream else segments


def all_segments(segments: list[Segment]) -> Iterator[Segment]:
    """Yield segments, each after the segments of its parts."""
    for segment in segments:
        yield from all_segments(list(itertools.chain.from_iterable(segment.parts)))
        yield segment


def cut_after(segments: list[Segment], call: Call) -> tuple[list[Segment], list[Segment]]:
    """Cut segments after a stage that runs in order."""
    for place, segment in enumerate(segments):
        number = next((n for n, each in enumerate(segment.calls, 1) if each is call), 0)
        if number:
            first = segment._replace(calls=segment.calls[:number])
            last = segment._replace(calls=segment.calls[number:], parts=())
            rest = [last] if last.calls else []
            return [*segments[:place], first], [*rest, *segments[place + 1 :]]
    raise AssertionError(f"{call!r} is in no segment")


def is_stream(chain: Chain, segments: list[Segment]) -> bool:
    """Return whether one worker reads a pipeline from end to end."""
    is_one = len(segments) == 1 and segments[0].kind == "chunks"
    return is_one and chain.machine.skip is None


def needs_reader(segments: list[Segment]) -> bool:
    """Return whether a thread or process has to run stages in order, next to the workers."""
    return len(segments) > 1 or segments[0].kind == "local"


def _split(chain: Chain, *, deals_first: bool) -> list[Segment]:
    calls = chain.calls
    seekable, end = _leading_stages(chain)
    segments = []
    if end > seekable and takes_time(calls[:end]):
        segments = [Segment("runs", calls[:end], seekable=seekable)]
    elif takes_time(calls[:seekable]):
        segments, end = [Segment("chunks", calls[:seekable])], seekable
    elif seekable:
        segments, end = [Segment("local", calls[:seekable])], seekable
    else:
        first, *others = calls
        is_unmade = has_access if (count := dealt(chain)) else is_chosen
        halves = _halves(first, is_unmade)
        first, made = next(halves), list(halves)
        joined = first.chains if first.combinator.is_source else ()
        parts = tuple(
            [Segment("chosen", each.calls)]
            if made and is_unmade(first, each)
            else _split(each, deals_first=deals_first)
            for each in joined
        )
        has_work = any(not each.is_local for part in parts for each in part)
        segments, end = [Segment("local", (first,), parts if has_work else ())], 1
        calls = (first, *others[:count], *made, *others[count:])
    owning = {id(call) for call, each in zip(chain.calls, chain.machines, strict=True) if each.owns}
    for call in itertools.chain.from_iterable(map(_halves, calls[end:])):
        made = _taken_off(segments, owning) if deals_first and _deals_items(call) else []
        for each in (call, *made):
            is_pointwise = each.combinator.pointwise and takes_time((each,))
            kind: Literal["items", "local"] = "items" if is_pointwise else "local"
            if segments[-1].kind == kind:
                last = segments[-1]
                segments[-1] = last._replace(calls=last.calls + (each,))
            else:
                segments.append(Segment(kind, (each,)))
    return segments


def _deals_items(call: Call) -> bool:
    """Return whether a stage deals items, of which functions may be called later."""
    arguments = call.arguments
    has_shards = arguments.get("num_shards", 1) > 1 and arguments.get("remainder") != "pad"
    return call.combinator.keeps_items and has_shards


def _taken_off(segments: list[Segment], owning: set[int]) -> list[Call]:
    """Take the last stages off that only call a function of each item; return them.

    Args:
        segments: The segments so far.
        owning: The identities of stages with positions of their own.
    """
    taken: list[Call] = []
    while segments[-1].kind in ("runs", "items"):
        *before, call = segments[-1].calls
        if not call.combinator.pointwise or id(call) in owning:
            break
        taken.insert(0, call)
        segments[-1] = segments[-1]._replace(calls=tuple(before))
        if not before:
            segments.pop()
    return taken


def dealt(chain: Chain) -> int:
    """Count the stages after a mixture up to the `shard` that deals it; 0 if there is none.

    Without workers, the mixture computes no items of other ranks there either.
    """
    first, *others = zip(chain.calls, chain.machines, strict=True)
    call = first[0]
    if not draws(call) or not all(has_access(call, each) for each in call.chains):
        return 0
    for number, (call, machine) in enumerate(others, 1):
        if machine.owns or not is_blind(call):
            return 0
        if machine.share.ranks > machine.upstream.share.ranks:
            return number
    return 0


def _leading_stages(chain: Chain) -> tuple[int, int]:
    """Count the first stages with random access, and these plus the item-wise stages after them."""
    pairs = list(zip(chain.calls, chain.machines, strict=True))
    seekable = next((n for n, (_, each) in enumerate(pairs) if each.skip is None), len(pairs))
    end, has_left_out = seekable, False
    while seekable and end < len(pairs) and _is_itemwise(*pairs[end]):
        call, machine = pairs[end]
        if machine.owns and has_left_out:  # its position has no room for records skipped before
            break
        has_left_out = has_left_out or leaves_out(call)
        end += 1
    return seekable, end


def _is_itemwise(call: Call, machine: Machine[Any]) -> bool:
    """Return whether a stage's outputs of an item don't depend on the items before it."""
    found = call.combinator
    if leaves_out(call):
        return bool(call.arguments["most"] == inf)  # no limit on errors in a row
    return found.itemwise or (found.pointwise and not machine.owns) or call.covers > 0


_DATA = {list, tuple, range, int, float, str, bool, type(None), np.ndarray}  # not subclasses


def takes_time(calls: tuple[Call, ...]) -> bool:
    """Return whether stages do more than look up items in memory."""
    return any(
        any(takes_time(each.calls) for each in call.chains)
        or any(not is_pipelines(v) and type(v) not in _DATA for v in call.arguments.values())
        for call in calls
    )


def shown_stage(call: Call) -> str:
    """Return a stage as text, without the pipelines that it joins."""
    return repr(without_pipelines(call))


def is_shared(segments: list[Segment], call: Call) -> bool:
    """Return whether workers run a stage in parallel."""
    shared = [each for each in all_segments(segments) if each.kind != "local"]
    return any(_whole(each) is call for segment in shared for each in segment.calls)


def called_after_shard(segments: list[Segment]) -> set[int]:
    """Return the identities of stages with functions called once `shard` has dealt the items."""
    calls = [call for segment in segments for call in segment.calls]
    after = itertools.dropwhile(lambda call: not _deals_items(call), calls)
    return {id(_whole(call)) for call in after}


def without_pipelines(call: Call) -> Call:
    """Return a stage to show, with "..." in place of its pipelines."""
    parameters = call.combinator.signature.parameters
    made: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if is_pipelines(value):
            is_star = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            made[name] = (_Elsewhere(),) if is_star else _Elsewhere()
    return call.replaced(**made)


def _halves(call: Call, is_unmade: Callable[[Call, Chain], bool] = is_chosen) -> Iterator[Call]:
    """Yield a stage or, if workers can run its `collate` or compute its choices, two halves."""
    name = next((name for name, role in call.functions.items() if role == "collate"), "")
    if name and not is_copying(call.arguments[name]):
        collating, function = registry["map"], call.arguments[name]
        yield _Half(call, call.combinator, {**call.arguments, name: None}, name)
        yield _Half(call, collating, collating.bind((function,), {}), name, is_last=True)
    elif any(is_unmade(call, each) and takes_time(each.calls) for each in call.chains):
        first, last = choice_and_making(call, is_unmade)
        yield _Half(call, first.combinator, first.arguments)
        yield _Half(call, last.combinator, last.arguments, is_last=True)
    else:
        yield call


def _whole(call: Call) -> Call:
    return call.whole if isinstance(call, _Half) else call


class _Half(Call):
    """One of two parts of a stage. Errors name the whole stage.

    Attributes:
        whole: The stage.
        is_last: If True, this is the second part.
    """

    __slots__ = ("_name", "is_last", "whole")

    whole: Call
    is_last: bool
    _name: str  # of the function in the second part; "" if the second part computes choices

    def __init__(
        self,
        whole: Call,
        combinator: Combinator,
        arguments: dict[str, Any],
        name: str = "",
        *,
        is_last: bool = False,
    ) -> None:
        super().__init__(combinator, arguments, whole.site)
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "is_last", is_last)
        object.__setattr__(self, "_name", name)

    def replaced(self, **arguments: Any) -> Call:
        made = {**self.arguments, **arguments}
        return _Half(self.whole, self.combinator, made, self._name, is_last=self.is_last)

    @property
    def shown(self) -> str:
        """The part as text: `batch(2, collate=...)`, `collate=stack`, or "" after a choice."""
        if not self._name:
            return "" if self.is_last else repr(without_pipelines(self.whole))
        if not self.is_last:
            return repr(self.whole.replaced(**{self._name: _Elsewhere()}))
        return f"{self._name}={show(self.whole.arguments[self._name])}"

    def _measured(self, machine: Machine[Any], *, gives_items: bool = True) -> Machine[Any]:
        return self.whole._measured(machine, gives_items=self.is_last)

    def __repr__(self) -> str:
        return repr(self.whole)

    def __reduce__(self) -> tuple[Any, ...]:
        public = self.combinator.public  # a function, pickled by reference
        return _half, (self.whole, public, self.arguments, self._name, self.is_last)


def _half(whole: Call, public: Any, arguments: dict[str, Any], name: str, is_last: bool) -> _Half:
    return _Half(whole, public.combinator, arguments, name, is_last=is_last)


class _Elsewhere(Shown):
    """A placeholder for an argument that is shown elsewhere."""

    def __repr__(self) -> str:
        return "..."
