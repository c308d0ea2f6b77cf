"""`on_error="skip"`: a pipeline in which items whose making fails are left out and counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np

from lazyckpt.core.call import Call, Chain, define
from lazyckpt.core.checks import brief
from lazyckpt.core.machine import Flow, Machine, Position, stateless
from lazyckpt.core.registry import Combinator, registry
from lazyckpt.errors import InvalidState, PipelineError
from lazyckpt.failures.skip_log import SkipLog, next_number, with_next_number, without_marks

# These pass an item on without a look at it, so that what is left out can be so behind them.
_BLIND = {"shuffle", "block_shuffle", "repeat", "shard", "take", "skip", "gather", "cache"}
_JOINING = {"concat", "interleave", "lanes", "mix"}


class _Hole:
    """Stands for an item that is left out, until there is a stage that would look at it."""

    def __init__(self, stage: str, what: str) -> None:
        self.stage, self.what = stage, what

    def told(self, place: Callable[[], Position]) -> str:
        """The stage, the position behind the item, and the error."""
        try:
            where = _cut(brief(without_marks(place())[0]))
        except InvalidState:  # a user's own state which is none
            where = "?"
        return f"{_cut(self.stage)} before {where}: {self.what}"


class _Guard:
    """A function that gives a hole where it fails, and passes on those that there are."""

    def __init__(self, fn: Callable[..., Any], stage: str) -> None:
        self.fn, self.stage = fn, stage

    def __call__(self, *args: Any) -> Any:
        if isinstance(args[-1], _Hole):
            return args[-1]
        try:
            return self.made(*args)
        except Exception as error:
            return self.instead(_Hole(self.stage, _short(error)))

    def made(self, *args: Any) -> Any:
        return self.fn(*args)

    def instead(self, hole: _Hole) -> Any:
        return hole


def _short(error: Exception) -> str:
    """Its type and message, in one line."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text


def _cut(text: str) -> str:
    return text if len(text) <= 32 else text[:29] + "..."


def _is_whole(item: Any) -> Any:
    return item if isinstance(item, _Hole) else True


def _inner(build: Callable[..., Machine[Any]]) -> Any:
    return define(
        build, lambda call: Chain((call,)), is_source=False, transparent=True, listed=False
    )


@_inner
def sieve(
    upstream: Machine[Any],
    judge: Callable[[Any], Any],
    number: int,
    skip_log: SkipLog,
    most: float = math.inf,
) -> Machine[Any]:
    """The items that `judge` finds true. Where it gives a hole, that is counted.

    In a stream one item comes after another, so that what is left out here has
    an order; all before may be done in any order, by any worker.

    - `number`: which stage of its pipeline this is
    - `most`: how many in a row may be left out of a stream that is repeated for ever
    """

    def flow(position: Position) -> Flow[Any]:
        before = upstream.flow(position)
        epoch, left_out = upstream.epoch(position), next_number(position, number)

        def kept() -> Iterator[Any]:
            nonlocal left_out
            in_a_row = 0
            for item in before:
                found = judge(item)
                if isinstance(found, _Hole):
                    skip_log.add(number, epoch, left_out, found.told(before.snapshot))
                    left_out += 1
                    in_a_row += 1
                    if in_a_row >= most:
                        raise PipelineError(
                            f"repeat: the stream to repeat for ever has given {in_a_row:,} items "
                            f"in a row that are left out, the last by {found.stage}: {found.what}"
                        )
                elif found:
                    in_a_row = 0
                    yield item

        return Flow(kept(), lambda: with_next_number(before.snapshot(), number, left_out))

    return stateless(upstream, flow=flow)


class _Star(_Guard):
    def made(self, *args: Any) -> Any:
        return self.fn(*args[0])


class _Tap(_Guard):
    def made(self, *args: Any) -> Any:
        self.fn(*args)
        return args[0]


class _Predicate(_Guard):
    def made(self, *args: Any) -> Any:
        return bool(self.fn(*args))


class _Expansion(_Guard):
    """What comes before a failure within an expansion stays; a hole is the last of it."""

    def made(self, *args: Any) -> Any:
        found = self.fn(*args)
        return found if isinstance(found, (list, Chain)) else self._items(found)

    def _items(self, found: Any) -> Iterator[Any]:
        try:
            yield from found
        except Exception as error:
            yield _Hole(self.stage, _short(error))

    def instead(self, hole: _Hole) -> Any:
        return [hole]


class _Data(_Guard):
    """Data with indices, some of which fail."""

    def __len__(self) -> int:
        return len(self.fn)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        return self(index)

    def made(self, *args: Any) -> Any:
        return self.fn[args[0]]  # type: ignore[index]


def skipping(chain: Chain, skip_log: SkipLog) -> Chain:
    """The pipeline without the items that fail, whose states are those of the pipeline.

    An item is left out where the function of a `map`, `starmap`, `random_map`,
    `tap`, `filter`, `flat_map` or `interleave_map` fails, or a `collate`, or data at
    an index; also in the parts of a `concat`, `interleave`, `lanes` or `mix`. Other
    errors are raised: what is left out of one part of a `zip` would shift it against
    the others, and a `scan` or `flat_scan` would go on with a state that is none.
    """
    return _Rewriting(skip_log).chain(chain)


class _Rewriting:
    """One pipeline on its way to another; stages that leave items out are numbered as they come."""

    def __init__(self, skip_log: SkipLog) -> None:
        self.skip_log = skip_log
        self.numbers = count()

    def chain(self, chain: Chain) -> Chain:
        calls: list[Call] = []
        holes = False  # whether items may stand for such that are left out
        most = math.inf
        for call in chain.calls:
            for each, is_blind, makes in self.guarded(call):
                if holes and is_blind and call.name == "repeat" and call.arguments["count"] is None:
                    length = Chain(tuple(calls)).machine.length
                    is_blind = length is not None  # of a stream there's no random access to keep
                    most = length or math.inf
                if holes and not is_blind:
                    calls.append(self.sieve(call, most=most))
                    holes, most = False, math.inf
                calls.append(each)
                holes = holes or makes
        if holes:
            calls.append(self.sieve(chain.calls[-1], most=most))
        return type(chain)(tuple(calls))

    def sieve(
        self, call: Call, judge: Callable[[Any], Any] = _is_whole, most: float = math.inf
    ) -> Call:
        return _call(sieve.combinator, call.site, judge, next(self.numbers), self.skip_log, most)

    def guarded(self, call: Call) -> Iterator[tuple[Call, bool, bool]]:
        """The calls in its place, each with whether holes pass it, and whether it makes some."""
        name, arguments, stage = call.name, call.arguments, repr(call)
        finish = call.combinator.finish
        if name in ("map", "random_map") and not arguments.get("vectorized"):
            yield call.replaced(fn=_Guard(arguments["fn"], stage)), True, True
        elif name in ("starmap", "tap"):
            guard = _Star if name == "starmap" else _Tap
            yield _mapping(call, guard(arguments["fn"], stage)), True, True
        elif name in ("flat_map", "interleave_map"):
            yield call.replaced(fn=_Expansion(arguments["fn"], stage)), False, False
            yield self.sieve(call), False, False
        elif name == "filter":
            yield self.sieve(call, _Predicate(arguments["predicate"], stage)), False, False
        elif name == "source" and "length" in call.identity()[1]:
            is_plain = isinstance(arguments["data"], (list, tuple, range, np.ndarray))
            data = arguments["data"] if is_plain else _Data(arguments["data"], stage)
            yield call.replaced(data=data), False, not is_plain
        elif name in _JOINING:
            parts = tuple([self.chain(part) for part in arguments["pipelines"]])
            yield call.replaced(pipelines=parts), False, False
        elif finish is not None and arguments[finish] is not None:
            yield call.replaced(**{finish: None}), False, False
            yield _mapping(call, _Guard(arguments[finish], stage)), True, True
        else:
            yield call, name in _BLIND, False


def skip_log_of(chain: Chain) -> SkipLog | None:
    """The skip log of a pipeline made by `skipping`."""
    for call in chain.calls:
        for value in call.arguments.values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, SkipLog):
                    return each
                if isinstance(each, Chain) and (found := skip_log_of(each)) is not None:
                    return found
    return None


def _mapping(call: Call, fn: Callable[..., Any]) -> Call:
    return _call(registry["map"], call.site, fn)


def _call(combinator: Combinator, site: str, *args: Any) -> Call:
    return Call(combinator, combinator.bind(args, {}), site)
