"""The facade: pipelines and stages as users hold them, and the decorators that make combinators."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from lazyckpt.core.call import Call, Chain, define, runnable, show
from lazyckpt.core.checks import Check, boolean, brief, checked, one_of
from lazyckpt.core.machine import End, Machine
from lazyckpt.core.registry import Carry, Deal, Parts, Rereads, Takes, registry
from lazyckpt.diagram import diagram
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor, as_executor
from lazyckpt.run import Run
from lazyckpt.state.state import State

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T = TypeVar("T")
Given = TypeVar("Given", covariant=True)
Taken = TypeVar("Taken", contravariant=True)
P = ParamSpec("P")


class Stage(Chain, Generic[Taken, Given]):
    """One or more combinators without a source: a reusable piece of a pipeline.

    >>> import lazyckpt as lz
    >>> pairs = lz.batch(2) | lz.map(sum)
    >>> list([1, 2, 3] | pairs)
    [3, 3]
    """

    __array_ufunc__ = None  # so that NumPy leaves `array | stage` to us
    _repr_html_ = diagram

    @overload
    def __or__(self, other: Keeping) -> Stage[Taken, Given]: ...
    @overload
    def __or__(self, other: Stage[Given, C]) -> Stage[Taken, C]: ...
    def __or__(self, other: Stage[Any, Any]) -> Stage[Taken, Any]:
        return Stage(self.calls + _stage(other).calls)

    def __ror__(self, data: Iterable[Taken]) -> Pipeline[Given]:
        source = cast(Callable[[Iterable[Taken]], Pipeline[Taken]], _public("source"))
        return source(data) | self

    if not TYPE_CHECKING:  # to a type checker a stage is no iterable

        def __iter__(self):
            raise TypeError(f"{self!r} has no source to iterate over; write source(data) | ...")


if TYPE_CHECKING:

    class Keeping(Stage[Any, Any]):
        """To type checkers, a stage that gives items of whatever type it gets."""

        @overload
        def __or__(self, other: Keeping) -> Keeping: ...
        @overload
        def __or__(self, other: Stage[A, B]) -> Stage[A, B]: ...
        def __or__(self, other: Stage[Any, Any]) -> Stage[Any, Any]: ...
        def __ror__(self, data: Iterable[A]) -> Pipeline[A]: ...

else:
    Keeping = Stage


class Pipeline(Chain, Generic[Given]):
    """A source and what is done to its items: a value, lazy, iterable, sliceable.

    Made by a source combinator and `|`. Iterating starts a new walk each time;
    `lazyckpt.run` starts one that can stop and resume.

    >>> import lazyckpt as lz
    >>> squares = lz.source(range(10)) | lz.map(lambda x: x * x)
    >>> len(squares), squares[3], list(squares[-2:])
    (10, 9, [64, 81])
    """

    __array_ufunc__ = None
    _repr_html_ = diagram

    @overload
    def __or__(self, other: Keeping) -> Pipeline[Given]: ...
    @overload
    def __or__(self, other: Stage[Given, B]) -> Pipeline[B]: ...
    def __or__(self, other: Stage[Any, Any]) -> Pipeline[Any]:
        added = _stage(other).calls
        result: Pipeline[Any] = Pipeline(self.calls + added)
        machine = self.machine
        for call in added:
            machine = call.build(machine)
        result.__dict__["machine"] = machine
        return result

    def __iter__(self) -> Iterator[Given]:
        return iter(Run(self))

    def __len__(self) -> int:
        length = self.machine.length
        if length is None:
            raise TypeError(f"{self!r} has no len(): only reading it tells")
        if length == math.inf:
            raise TypeError(f"{self!r} has no len(): it is endless; take(n) ends it")
        return int(length)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Given: ...
    @overload
    def __getitem__(self, index: slice) -> Pipeline[Given]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Given | Pipeline[Given]:
        """One item, computed alone; or a slice, as a pipeline."""
        if isinstance(index, slice):
            return self._slice(index)
        skip = self.machine.skip
        if skip is None:
            raise TypeError(f"{self!r} has no random access; use take, skip or a slice")
        wanted = operator.index(index)
        number = wanted + len(self) if wanted < 0 else wanted
        if number >= 0:
            position, passed = skip(self.machine.init(0), number)
            if passed == number:
                try:
                    return cast(Given, self.machine.step(position)[1])
                except End:
                    pass
        raise IndexError(f"pipeline index {brief(wanted)} out of range")

    def _slice(self, index: slice) -> Pipeline[Given]:
        start, stop, stride = index.start, index.stop, index.step
        if any(i is not None and operator.index(i) < 0 for i in (start, stop)):
            start, stop, _ = slice(start, stop).indices(len(self))
        stride = 1 if stride is None else operator.index(stride)
        if stride < 1:
            raise ArgumentError(
                f"a slice of a pipeline goes forward: its step must be >= 1, got {stride}"
            )
        start = 0 if start is None else operator.index(start)
        result = self
        if start:
            result = result | _public("skip")(start)
        if stop is not None:
            result = result | _public("take")(max(0, operator.index(stop) - start))
        if stride > 1:
            result = result | _public("shard")(num_shards=stride, index=0)
        return result


def run(
    pipeline: Pipeline[T],
    state: State | str | bytes | Mapping[str, Any] | None = None,
    *,
    strict: bool = True,
    executor: Executor | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> Run[T]:
    """Walk through a pipeline from a state on: an iterator that knows its own state.

    - `state`: where to go on, as a `State`, its JSON text or its dict; None is the beginning
    - `strict`: refuse a state of another pipeline with `StateMismatch`
    - `executor`: who makes the items: `inline()`, `threads(...)`, `processes(...)`, ...
    - `on_error`: "skip" leaves out an item where the function of a `map`, `starmap`,
      `random_map`, `tap`, `filter`, `flat_map` or `interleave_map` fails, a `collate`
      or an index of the source, and counts it in `Run.skipped` and in the state;
      of an iterable that fails midway, the rest counts as one. Other errors are
      raised: of `take_while`, `scan`, `flat_scan`, vectorized maps, streams, and
      within the parts of a `zip`, as they would shift it. Positions are those of
      the pipeline, but for that of a `skip` that has lost its random access: behind
      such a stage items have none

    Resuming reads again what the stages say that they read again, no more.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(6)) | lz.batch(2)
    >>> first = lz.run(pipeline)
    >>> next(first), next(first)
    ([0, 1], [2, 3])
    >>> list(lz.run(pipeline, first.state.to_json()))
    [[4, 5]]
    """
    strict = checked("run", "strict", strict, boolean)
    found = runnable("run", pipeline)
    skips = checked("run", "on_error", on_error, one_of("raise", "skip")) == "skip"
    return Run(found, state, strict=strict, executor=as_executor(executor), skips=skips)


class Options(TypedDict, total=False):
    """The keywords of `combinator`."""

    checks: Mapping[str, Check]
    validate: Callable[..., None]
    free: tuple[str, ...]
    elastic: Mapping[str, str]
    transparent: bool
    lockstep: bool
    rigid: Callable[..., bool]
    pointwise: bool
    finish: str
    listed: bool
    again: Rereads
    takes: Takes


@overload
def combinator(
    *, keeps_items: Literal[True], **options: Unpack[Options]
) -> Callable[[Callable[Concatenate[Machine[A], P], Machine[A]]], Callable[P, Keeping]]: ...
@overload
def combinator(
    **options: Unpack[Options],
) -> Callable[[Callable[Concatenate[Machine[A], P], Machine[B]]], Callable[P, Stage[A, B]]]: ...
def combinator(*, keeps_items: bool = False, **options: Unpack[Options]) -> Any:
    """Make a combinator of a function from the upstream machine and arguments to a machine.

    The upstream parameter vanishes from the public signature; the function's
    name is the combinator's.

    - `checks`: a check for each argument, from `lazyckpt.core.checks`
    - `validate`: called with all arguments, to refuse what doesn't go together
    - `keeps_items`: items have the type of upstream's, whatever that is; for type checkers
    - `free`: arguments that change no order, which a state doesn't mind
    - `elastic`: arguments that `rebase` may change, with what the stages behind
      have to be for that: "transparent", "lockstep" or "any"
    - `transparent`: the position is upstream's own; the stage has none
    - `lockstep`: that, and as many items are taken for each given, whatever they are
    - `rigid`: called with all arguments, whether with these it is none of the last three
    - `pointwise`: each item is made of one item and its place alone, so that
      an executor may make many at a time
    - `finish`: the argument, a function or None, that is called on each item made
    - `listed`: whether it is in `lazyckpt.registry`; a library's inner stages need not be
    - `again`: what a resume takes of upstream once more, for `resume_cost`: of a
      position, `upstream` and all arguments, a list of `lazyckpt.core.registry.Again`;
      by default nothing
    - `takes`: of `upstream` and all arguments, a `lazyckpt.core.registry.Taken`: how many
      items are taken for each one given; by default one where `pointwise`, and
      elsewhere nobody knows

    A step that has a position of its own catches upstream's `End` and raises
    one with its own position, as `take` does.

    >>> from lazyckpt.core.machine import End, Machine, stateless
    >>> from lazyckpt import registry, source
    >>> @combinator(transparent=True)
    ... def negated(upstream: Machine[int]) -> Machine[int]:
    ...     return stateless(upstream, flow=lambda at: upstream.flow(at).map(lambda x: -x))
    >>> list(source([1, 2]) | negated())
    [-1, -2]
    >>> _ = registry.pop("negated")
    """

    return lambda build: define(build, _staged, is_source=False, **options)


def source_combinator(
    *,
    checks: Mapping[str, Check] | None = None,
    describe: Callable[..., dict[str, Any]] | None = None,
    validate: Callable[..., None] | None = None,
    free: tuple[str, ...] = (),
    listed: bool = True,
    elastic: Mapping[str, str] | None = None,
    parts: Parts | None = None,
    carry: Carry | None = None,
    deal: Deal | None = None,
    again: Rereads | None = None,
    takes: Takes | None = None,
) -> Callable[[Callable[P, Machine[B]]], Callable[P, Pipeline[B]]]:
    """Make a source of a function from arguments to a machine.

    - `describe`: what a state remembers of the arguments, as JSON; by default
      all that decide the order
    - `free`: arguments that change no order, which a state doesn't mind
    - `listed`: whether it is in `lazyckpt.registry`
    - `elastic`: as for `combinator`
    - `parts`: of a position and the arguments, the places of the pipelines among
      these, by their number, and the rest of the position
    - `carry`: what `rebase` makes of a position and the arguments before, where
      others follow by keyword; `lazyckpt.core.checks.Unfit`, with the reason, for nothing
    - `deal`: what `reshard` makes of the positions of all ranks and another number
      of ranks: the positions of these
    - `again`, `takes`: as for `combinator`, without `upstream`; what is taken again
      are items of the data, and each item given takes one of some pipeline, by
      default one of each
    """

    return lambda build: define(
        build,
        _started,
        is_source=True,
        checks=checks,
        describe=describe,
        validate=validate,
        free=free,
        listed=listed,
        elastic=elastic,
        parts=parts,
        carry=carry,
        deal=deal,
        again=again,
        takes=takes,
    )


def _staged(call: Call) -> Stage[Any, Any]:
    return Stage((call,))


def _started(call: Call) -> Pipeline[Any]:
    pipeline: Pipeline[Any] = Pipeline((call,))
    _ = pipeline.machine  # bad data is refused here, not when first read
    return pipeline


def _public(name: str) -> Any:
    return registry[name].public


def _stage(other: Any) -> Stage[Any, Any]:
    if isinstance(other, Stage):
        return other
    if isinstance(other, Pipeline):
        raise ArgumentError(
            f"{brief(other)} has a source of its own and can't follow `|`; "
            "zip, concat and their like join pipelines"
        )
    name = getattr(other, "__name__", "")
    if name in registry and registry[name].public is other:
        raise ArgumentError(f"{name} is not called; write | {name}(...)")
    if callable(other):
        raise ArgumentError(f"{show(other)} is no stage; did you mean | map({show(other)})?")
    raise ArgumentError(f"{brief(other)} ({type(other).__name__}) is no stage")
