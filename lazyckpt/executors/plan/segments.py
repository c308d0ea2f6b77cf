"""Cut a pipeline into segments: what workers can do, and what runs in one place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import Shown
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Combinator, registry
from lazyckpt.core.show import show


class Segment(NamedTuple):
    """Consecutive stages that run together.

    Attributes:
        kind: "chunks" where workers read from positions of their own, "items" where
            they work item by item, "local" for one thread next to the consumer.
        calls: The stages.
    """

    kind: Literal["chunks", "items", "local"]
    calls: tuple[Call, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """The stages as they are shown; of a composite that is taken apart, those inside."""
        calls = (call for call in self.calls if not call.covers)
        return tuple(call.shown if isinstance(call, _Half) else repr(call) for call in calls)


def split_pipeline(chain: Chain, *, workers: int, can_stream: bool) -> list[Segment]:
    """The segments of a pipeline, in order.

    Args:
        chain: The pipeline.
        workers: How many workers there are.
        can_stream: Whether one worker can read a stream from end to end.
    """
    whole = [Segment("chunks", chain.calls)]
    if chain.machine.skip is not None or (can_stream and workers == 1):
        return whole
    start = _seekable_stages(chain.calls)
    if not takes_time(chain.calls[:start]):
        start = 0
    segments = [Segment("chunks", chain.calls[:start])] if start else []
    for call in itertools.chain.from_iterable(map(_without_collate, chain.calls[start:])):
        is_pointwise = call.combinator.pointwise and takes_time((call,))
        kind: Literal["items", "local"] = "items" if is_pointwise else "local"
        if segments and segments[-1].kind == kind:
            segments[-1] = Segment(kind, segments[-1].calls + (call,))
        else:
            segments.append(Segment(kind, (call,)))
    return whole if can_stream and len(segments) == 1 else segments


def _seekable_stages(calls: tuple[Call, ...]) -> int:
    """How many stages come before the first one without random access."""
    machine: Machine[Any] | None = None
    for number, call in enumerate(calls):
        machine = call.build(machine)
        if machine.skip is None:
            return number
    return len(calls)


_DATA = {list, tuple, range, int, float, str, bool, type(None), np.ndarray}  # and no subclass


def takes_time(calls: tuple[Call, ...]) -> bool:
    """Whether stages do more than look up what is in memory."""
    return any(type(value) not in _DATA for call in calls for value in call.arguments.values())


def _without_collate(call: Call) -> Iterator[Call]:
    """A stage, and the function that collates its items as a `map` of its own."""
    name = next((name for name, role in call.functions.items() if role == "collate"), None)
    if name is None:
        yield call
        return
    collating, function = registry["map"], call.arguments[name]
    yield _Half(call, name, call.combinator, {**call.arguments, name: None})
    yield _Half(call, name, collating, collating.bind((function,), {}))


class _Half(Call):
    """A part of a stage, which errors name as a whole."""

    __slots__ = ("_name", "_whole")

    _whole: Call
    _name: str  # of the function that is apart

    def __init__(
        self, whole: Call, name: str, combinator: Combinator, arguments: dict[str, Any]
    ) -> None:
        super().__init__(combinator, arguments, whole.site)
        object.__setattr__(self, "_whole", whole)
        object.__setattr__(self, "_name", name)

    @property
    def shown(self) -> str:
        """As a part: `batch(2, collate=...)` or `collate=stack`."""
        if self.combinator is self._whole.combinator:
            return repr(self._whole.replaced(**{self._name: _Elsewhere()}))
        return f"{self._name}={show(self._whole.arguments[self._name])}"

    def __repr__(self) -> str:
        return repr(self._whole)

    def __reduce__(self) -> tuple[Any, ...]:
        public = self.combinator.public  # which pickles by reference
        return _half, (self._whole, self._name, public, self.arguments)


def _half(whole: Call, name: str, public: Any, arguments: dict[str, Any]) -> _Half:
    return _Half(whole, name, public.combinator, arguments)


class _Elsewhere(Shown):
    """In place of a function that is called elsewhere."""

    def __repr__(self) -> str:
        return "..."
