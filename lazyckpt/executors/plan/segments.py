"""Cut a pipeline into segments: what workers can do, and what runs in one place."""

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
from lazyckpt.executors.plan.counting import is_blind
from lazyckpt.failures.skipping import leaves_out


class Segment(NamedTuple):
    """Consecutive stages that run together.

    Attributes:
        kind: "chunks" where workers read from positions of their own, "runs" where they
            make what comes of a run of items, "items" where they work item by item,
            "local" where one place has to do all of it, "chosen" of what is joined where
            workers make what is taken of it, item by item behind what joins it.
        calls: The stages.
        parts: Of a local one that begins with what joins pipelines, the segments of each.
        seekable: Of runs, how many of the stages have random access.
    """

    kind: Literal["chunks", "runs", "items", "local", "chosen"]
    calls: tuple[Call, ...]
    parts: tuple[list[Segment], ...] = ()
    seekable: int = 0

    @property
    def is_local(self) -> bool:
        """Whether workers do nothing of it."""
        return self.kind == "local" and not self.parts

    @property
    def has_tasks(self) -> bool:
        """Whether workers have tasks of its own."""
        return self.kind not in ("local", "chosen")

    @property
    def whole_calls(self) -> tuple[Call, ...]:
        """The stages; one that is taken apart comes with its first part."""
        first = [call for call in self.calls if not (isinstance(call, _Half) and call.is_last)]
        return tuple(map(_whole, first))

    @property
    def shown(self) -> tuple[str, ...]:
        """The stages as they are shown; of a composite that is taken apart, those inside."""
        calls = [call for call in self.calls if not call.covers]
        if self.parts:  # which have lines of their own
            calls[0] = without_pipelines(calls[0])
        shown = [call.shown if isinstance(call, _Half) else repr(call) for call in calls]
        return tuple(filter(None, shown))


def split_pipeline(chain: Chain, *, workers: int, can_stream: bool) -> list[Segment]:
    """The segments of a pipeline, in order.

    Args:
        chain: The pipeline.
        workers: How many workers there are.
        can_stream: Whether one worker can read a stream from end to end.
    """
    whole = [Segment("chunks", chain.calls)]
    if chain.machine.skip is not None:
        return whole
    segments = _split(chain)
    is_one = workers == 1 and [each.kind for each in segments] != ["runs"]
    is_stream = is_one or all(each.is_local for each in segments)
    return whole if can_stream and is_stream else segments


def all_segments(segments: list[Segment]) -> Iterator[Segment]:
    """Segments, and those of their parts before each."""
    for segment in segments:
        yield from all_segments(list(itertools.chain.from_iterable(segment.parts)))
        yield segment


def is_stream(chain: Chain, segments: list[Segment]) -> bool:
    """Whether one worker reads a pipeline from end to end."""
    is_one = len(segments) == 1 and segments[0].kind == "chunks"
    return is_one and chain.machine.skip is None


def needs_reader(segments: list[Segment]) -> bool:
    """Whether something has to read what workers make, or that from which they make it."""
    return len(segments) > 1 or segments[0].kind == "local"


def _split(chain: Chain) -> list[Segment]:
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
        is_unmade = has_access if (dealt := _dealt(chain)) else is_chosen
        halves = _halves(first, is_unmade)
        first, made = next(halves), list(halves)
        joined = first.chains if first.combinator.is_source else ()
        parts = tuple(
            [Segment("chosen", each.calls)] if made and is_unmade(first, each) else _split(each)
            for each in joined
        )
        has_work = any(not each.is_local for part in parts for each in part)
        segments, end = [Segment("local", (first,), parts if has_work else ())], 1
        calls = (first, *others[:dealt], *made, *others[dealt:])
    for call in itertools.chain.from_iterable(map(_halves, calls[end:])):
        is_pointwise = call.combinator.pointwise and takes_time((call,))
        kind: Literal["items", "local"] = "items" if is_pointwise else "local"
        if segments[-1].kind == kind:
            last = segments[-1]
            segments[-1] = last._replace(calls=last.calls + (call,))
        else:
            segments.append(Segment(kind, (call,)))
    return segments


def _dealt(chain: Chain) -> int:
    """How many stages come after a mixture up to the `shard` that deals it; 0 if none does.

    Without workers the mixture makes no item of another rank there either.
    """
    first, *others = zip(chain.calls, chain.machines, strict=True)
    for number, (call, machine) in enumerate(others if first[0].name == "mix" else (), 1):
        if machine.share.ranks > machine.upstream.share.ranks:
            return number if is_blind(call) else 0
        if call.name != "repeat":
            break
    return 0


def _leading_stages(chain: Chain) -> tuple[int, int]:
    """How many of the first stages have random access; and with those that go item by item."""
    pairs = list(zip(chain.calls, chain.machines, strict=True))
    seekable = next((n for n, (_, each) in enumerate(pairs) if each.skip is None), len(pairs))
    end, has_left_out = seekable, False
    while seekable and end < len(pairs) and _is_itemwise(*pairs[end]):
        call, machine = pairs[end]
        if machine.owns and has_left_out:  # what is left out before it has no place within it
            break
        has_left_out = has_left_out or leaves_out(call)
        end += 1
    return seekable, end


def _is_itemwise(call: Call, machine: Machine[Any]) -> bool:
    """Whether what a stage makes of an item depends on nothing before it."""
    found = call.combinator
    if leaves_out(call):
        return bool(call.arguments["most"] == inf)  # in a row
    return found.itemwise or (found.pointwise and not machine.owns) or call.covers > 0


_DATA = {list, tuple, range, int, float, str, bool, type(None), np.ndarray}  # and no subclass


def takes_time(calls: tuple[Call, ...]) -> bool:
    """Whether stages do more than look up what is in memory."""
    return any(
        any(takes_time(each.calls) for each in call.chains)
        or any(not is_pipelines(v) and type(v) not in _DATA for v in call.arguments.values())
        for call in calls
    )


def shown_stage(call: Call) -> str:
    """A stage as it is shown where the pipelines that it joins are shown apart."""
    return repr(without_pipelines(call))


def is_shared(segments: list[Segment], call: Call) -> bool:
    """Whether workers do a stage beside each other."""
    shared = [each for each in all_segments(segments) if each.kind != "local"]
    return any(_whole(each) is call for segment in shared for each in segment.calls)


def without_pipelines(call: Call) -> Call:
    """A stage to be shown, its pipelines as "..."."""
    parameters = call.combinator.signature.parameters
    made: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if is_pipelines(value):
            is_star = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            made[name] = (_Elsewhere(),) if is_star else _Elsewhere()
    return call.replaced(**made)


def _halves(
    call: Call, is_unmade: Callable[[Call, Chain], bool] = is_chosen
) -> Iterator[Call]:
    """A stage; or two, if workers do the second: its function that collates, or its choices."""
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
    """A part of a stage, which errors name as a whole.

    Attributes:
        whole: What it is a part of.
        is_last: Whether it is the second part.
    """

    __slots__ = ("_name", "is_last", "whole")

    whole: Call
    is_last: bool
    _name: str  # of the function that is apart, if one is

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
        """As a part: `batch(2, collate=...)` or `collate=stack`; nothing behind a choice."""
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
        public = self.combinator.public  # which pickles by reference
        return _half, (self.whole, public, self.arguments, self._name, self.is_last)


def _half(whole: Call, public: Any, arguments: dict[str, Any], name: str, is_last: bool) -> _Half:
    return _Half(whole, public.combinator, arguments, name, is_last=is_last)


class _Elsewhere(Shown):
    """In place of what runs elsewhere."""

    def __repr__(self) -> str:
        return "..."
