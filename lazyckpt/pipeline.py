"""The facade: pipelines and stages as users hold them, and the decorators that make combinators."""

from __future__ import annotations

import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from lazyckpt.core.call import Call, Chain, runnable
from lazyckpt.core.checks import Check, boolean, brief, checked, one_of
from lazyckpt.core.define import Options, define
from lazyckpt.core.machine import End, Machine
from lazyckpt.core.registry import Combinator, registry
from lazyckpt.core.show import show
from lazyckpt.core.stages import passing
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
Composed = TypeVar("Composed", bound=Chain)


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

    def __call__(self, data: Pipeline[Taken] | Iterable[Taken]) -> Pipeline[Given]:
        """What `data | stage` is, for `toolz.pipe` and its like."""
        if isinstance(data, Stage):
            return data | self  # type: ignore[return-value]  # a fragment, as by toolz.compose
        return data | self if isinstance(data, Pipeline) else self.__ror__(data)

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
    """Run a pipeline from a state on: an iterator that knows its own state.

    A resume re-reads what the stages say that they re-read, and no more.

    With `on_error="skip"` an item is left out where the function of a `map`,
    `starmap`, `random_map`, `tap`, `filter`, `flat_map` or `interleave_map` fails, a
    `collate` or an index of the source, and counted in `Run.skipped` and in the
    state; of an iterable that fails midway, the rest counts as one. Other errors
    are raised: of `take_while`, `scan`, `flat_scan`, vectorized maps, streams, and
    within the parts of a `zip`, as they would shift it. Positions are those of
    the pipeline, but for that of a `skip` that has lost its random access: behind
    such a stage items have none.

    Args:
        pipeline: What to run.
        state: Where to go on, as a `State`, its JSON text or its dict; None is the beginning.
        strict: Whether to refuse a state of another pipeline.
        executor: Who makes the items: `inline()`, `threads(...)`, `processes(...)`, ...
        on_error: "raise", or "skip" to leave out what fails.

    Returns:
        A `Run`: an iterator and a context manager, with `state`.

    Raises:
        StateMismatch: The state belongs to another pipeline, and `strict` is set.
        InvalidState: The state is damaged, or doesn't fit.

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


@overload
def combinator(
    *, keeps_items: Literal[True], pointwise: bool = False, **options: Unpack[Options]
) -> Callable[[Callable[Concatenate[Machine[A], P], Machine[A]]], Callable[P, Keeping]]: ...
@overload
def combinator(
    *, pointwise: bool = False, **options: Unpack[Options]
) -> Callable[[Callable[Concatenate[Machine[A], P], Machine[B]]], Callable[P, Stage[A, B]]]: ...
def combinator(
    *, keeps_items: bool = False, pointwise: bool = False, **options: Unpack[Options]
) -> Any:
    """Make a combinator of a function from the upstream machine and arguments to a machine.

    The upstream parameter vanishes from the public signature; the function's
    name is the combinator's. `stateless` and `stateful` make its machine, of a
    `step`, or of a `flow`, whose `snapshot` is the position that it was opened at
    before the first `next`, and after each item the one behind it.

    Args:
        keeps_items: Whether it passes items on as they are, whatever they are.
        pointwise: Whether it makes each item of one item and its place alone, so that
            an executor may make many at a time.
        checks: A check for each argument, from `lazyckpt.core.checks`.
        validate: Called with all arguments, to refuse what doesn't go together.
        unrecorded: Arguments that change no order, which a state doesn't mind.
        functions: The functions among the arguments, with what each does: see
            `lazyckpt.core.registry.Role`. By these alone the stage looks at items.
        rebasable: Arguments that `rebase` may change, with what the stages behind have to
            be for that: "any", "stateless" or "lockstep".
        branch: What `rebase` makes of the stage's own part where `seed` has changed: given
            upstream's place, the part, the old seed and all arguments.
        trace: From the stored call and a `lazyckpt.provenance.Tracing` to a stage that takes
            and gives items with their origins and has the same positions, where neither
            rates nor functions tell which items went into one; see `lazyckpt.trace`.
        registered: Whether it is in `lazyckpt.registry`; a library's inner stages need not be.

    >>> from lazyckpt.core.stages import stateless
    >>> from lazyckpt.core.machine import Machine, Rate
    >>> from lazyckpt import registry, source
    >>> @combinator(pointwise=True)
    ... def negated(upstream: Machine[int]) -> Machine[int]:
    ...     flow = lambda at: upstream.flow(at).map(lambda x: -x)
    ...     return stateless(upstream, rate=Rate(), flow=flow)
    >>> list(source([1, 2]) | negated())
    [-1, -2]
    >>> _ = registry.pop("negated")
    """

    def wrap(build: Callable[..., Machine[Any]]) -> Any:
        return define(
            build,
            _staged,
            is_source=False,
            keeps_items=keeps_items,
            pointwise=pointwise,
            **options,
        )

    return wrap


def source_combinator(
    *,
    describe: Callable[..., dict[str, Any]] | None = None,
    rebase: Callable[..., Any] | None = None,
    reshard: Callable[..., Any] | None = None,
    **options: Unpack[Options],
) -> Callable[[Callable[P, Machine[B]]], Callable[P, Pipeline[B]]]:
    """Make a source of a function from arguments to a machine, by `sourced` or `joining`.

    Args:
        describe: What a state remembers of the arguments, as JSON; by default all that
            decide the order.
        rebase: What `rebase` makes of a position and the entry that a state has of the
            stage, where all arguments follow by keyword; it raises
            `lazyckpt.core.checks.Unfit`, with the reason, for what has no meaning.
        reshard: What `reshard` makes of the positions of all ranks and another number of
            ranks: the positions of these.
        options: As for `combinator`.
    """

    def wrap(build: Callable[P, Machine[B]]) -> Any:
        return define(
            build,
            _started,
            is_source=True,
            describe=describe,
            rebase=rebase,
            reshard=reshard,
            **options,
        )

    return wrap


@overload
def composite(make: Callable[P, Composed], /) -> Callable[P, Composed]: ...
@overload
def composite(
    *, checks: Mapping[str, Check]
) -> Callable[[Callable[P, Composed]], Callable[P, Composed]]: ...
def composite(
    make: Callable[P, Composed] | None = None, *, checks: Mapping[str, Check] | None = None
) -> Any:
    """Make a named stage, or source, of a function that composes stages.

    Its arguments are part of a state's identity, also where a closure hides them
    from the stages that it is made of.

    Args:
        make: The function, which returns stages composed by `|`.
        checks: A check for each argument, from `lazyckpt.core.checks`.

    >>> import lazyckpt as lz
    >>> @lz.composite
    ... def windows(seconds: float, *, seed: int):
    ...     return lz.map(lambda x: x * seconds) | lz.shuffle(seed=seed)
    >>> pipeline = lz.source([1, 2, 3]) | windows(0.5, seed=0)
    >>> pipeline
    source([1, 2, 3]) | windows(0.5, seed=0)
    >>> lz.init(pipeline)
    State(items=0)
      source(length=3)              0, 0
      map()
      shuffle(seed=0)               0
      windows(seconds=0.5, seed=0)
    """
    if make is None:
        return lambda found: _composite(found, checks)
    return _composite(make, checks)


def _composite(
    make: Callable[P, Composed], checks: Mapping[str, Check] | None
) -> Callable[P, Composed]:
    def mark(upstream: Machine[Any], /, *args: Any, **kwargs: Any) -> Machine[Any]:
        return passing(upstream)

    signature = inspect.signature(make)
    first = inspect.Parameter("upstream", inspect.Parameter.POSITIONAL_ONLY)
    wraps(make)(mark)
    mark.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[first, *signature.parameters.values()]
    )
    marked: Any = define(
        mark, _staged, is_source=False, keeps_items=True, checks=checks, registered=False
    )

    @wraps(make)
    def public(*args: P.args, **kwargs: P.kwargs) -> Composed:
        frame = sys._getframe(1)
        arguments = known.bind(args, kwargs)
        made = make(*args, **kwargs)
        if not isinstance(made, (Stage, Pipeline)):
            raise ArgumentError(
                f"{make.__name__}: a composite must return stages, got {brief(made)}"
            )
        site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return type(made)((*made.calls, Call(known, arguments, site, len(made.calls))))

    known: Combinator = marked.combinator._replace(public=public)
    public.combinator = known  # type: ignore[attr-defined]  # where unpickled calls find it
    return public


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
