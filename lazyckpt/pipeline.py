"""The public classes of pipelines and stages, and `run`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike, fspath
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    SupportsIndex,
    TypeVar,
    cast,
    overload,
)

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import Unfit, boolean, brief, checked, one_of
from lazyckpt.core.registry import registry
from lazyckpt.core.show import show
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor, as_executor
from lazyckpt.run import Run
from lazyckpt.state.state import State

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
K = TypeVar("K")
T = TypeVar("T")
Next = TypeVar("Next", bound="Stage[Any, Any]")
Given = TypeVar("Given", covariant=True)
Key = TypeVar("Key", covariant=True)
Taken = TypeVar("Taken", contravariant=True)


class Stage(Chain, Generic[Taken, Given]):
    """One or more combinators without a source: a reusable part of a pipeline.

    >>> import lazyckpt as lz
    >>> pairs = lz.batch(2) | lz.map(sum)
    >>> list([1, 2, 3] | pairs)
    [3, 3]
    """

    __array_ufunc__ = None  # so that NumPy leaves `array | stage` to us
    __pandas_priority__ = 5_000  # and pandas `frame | stage`

    @overload
    def __or__(self, other: Keeping[Given]) -> Stage[Taken, Given]: ...
    @overload
    def __or__(self, other: Listing[Given]) -> Stage[Taken, list[Given]]: ...
    @overload
    def __or__(self, other: Grouping[Given, K]) -> Stage[Taken, tuple[K, list[Given]]]: ...
    @overload
    def __or__(self, other: Numbering) -> Stage[Taken, tuple[int, Given]]: ...
    @overload
    def __or__(self, other: Sliding) -> Stage[Taken, tuple[Given, ...]]: ...
    @overload
    def __or__(self: Stage[Taken, list[A]], other: Unbatching) -> Stage[Taken, A]: ...
    @overload
    def __or__(self, other: Stage[Given, C]) -> Stage[Taken, C]: ...
    def __or__(self, other: Stage[Any, Any]) -> Stage[Taken, Any]:
        return Stage(self.calls + _stage(other).calls)

    def __ror__(self, data: Iterable[Taken]) -> Pipeline[Given]:
        source = cast(Callable[[Iterable[Taken]], Pipeline[Taken]], _public("source"))
        return source(data) | self

    def __call__(self, data: Pipeline[Taken] | Iterable[Taken]) -> Pipeline[Given]:
        """Return `data | stage`, for `toolz.pipe` and similar helpers."""
        if isinstance(data, Stage):
            return data | self  # type: ignore[return-value]  # a fragment, as by toolz.compose
        return data | self if isinstance(data, Pipeline) else self.__ror__(data)

    if not TYPE_CHECKING:  # for type checkers, a stage is not iterable

        def __iter__(self):
            raise TypeError(f"{self!r} has no source to iterate over; write source(data) | ...")


if TYPE_CHECKING:
    # For type checkers only: stages that take items of any type, and yield them or something made
    # of them; `Stage[A, B]` can't express that. `Taken` is the required type, `object` for any.

    class Keeping(Stage[Taken, Any]):
        """Yields items as it takes them."""

        @overload
        def __or__(self: Keeping[object], other: Next) -> Next: ...
        @overload
        def __or__(self, other: Keeping[Any]) -> Keeping[Taken]: ...
        @overload
        def __or__(self, other: Listing[Any]) -> Listing[Taken]: ...
        @overload
        def __or__(self, other: Stage[Any, C]) -> Stage[Taken, C]: ...
        def __or__(self, other: Stage[Any, Any]) -> Stage[Any, Any]: ...
        @overload
        def __ror__(self: Keeping[object], data: Iterable[A]) -> Pipeline[A]: ...
        @overload
        def __ror__(self: Keeping[A], data: Iterable[A]) -> Pipeline[A]: ...
        def __ror__(self, data: Iterable[Any]) -> Pipeline[Any]: ...

    class Listing(Stage[Taken, Any]):
        """Yields lists of the items it takes."""

        @overload
        def __ror__(self: Listing[object], data: Iterable[A]) -> Pipeline[list[A]]: ...
        @overload
        def __ror__(self: Listing[A], data: Iterable[A]) -> Pipeline[list[A]]: ...
        def __ror__(self, data: Iterable[Any]) -> Pipeline[Any]: ...

    class Grouping(Stage[Taken, Any], Generic[Taken, Key]):
        """Yields lists of the items it takes, with keys."""

        def __ror__(self: Grouping[A, K], data: Iterable[A]) -> Pipeline[tuple[K, list[A]]]: ...

    class Numbering(Stage[object, Any]):
        """Yields the items it takes, with numbers."""

        def __ror__(self, data: Iterable[A]) -> Pipeline[tuple[int, A]]: ...

    class Sliding(Stage[object, Any]):
        """Yields tuples of the items it takes."""

        def __ror__(self, data: Iterable[A]) -> Pipeline[tuple[A, ...]]: ...

    class Unbatching(Stage[object, Any]):
        """Yields the contents of the lists it takes."""

        @overload
        def __ror__(self, data: Iterable[list[A]]) -> Pipeline[A]: ...
        @overload
        def __ror__(self, data: Iterable[object]) -> Pipeline[Any]: ...
        def __ror__(self, data: Iterable[Any]) -> Pipeline[Any]: ...


else:
    Keeping = Stage[T, T]
    Listing = Stage[T, list[T]]
    Grouping = Stage[T, tuple[K, list[T]]]
    Numbering = Stage[T, tuple[int, T]]
    Sliding = Stage[T, tuple[T, ...]]
    Unbatching = Stage[list[T], T]


class Pipeline(Chain, Generic[Given]):
    """A lazy, immutable description of a data source and the stages applied to it.

    It is made by a source combinator and `|`, and can be iterated, and sliced if it has random
    access. Iterating starts from the beginning each time, so a pipeline is not an iterator:
    `next(iter(pipeline))` is its first item, and `next(pipeline)` raises a TypeError.
    `lazyckpt.run` starts an iteration that can stop and resume.

    >>> import lazyckpt as lz
    >>> squares = lz.source(range(10)) | lz.map(lambda x: x * x)
    >>> len(squares), squares[3], list(squares[-2:])
    (10, 9, [64, 81])
    """

    __array_ufunc__ = None

    @overload
    def __or__(self, other: Keeping[Given]) -> Pipeline[Given]: ...
    @overload
    def __or__(self, other: Listing[Given]) -> Pipeline[list[Given]]: ...
    @overload
    def __or__(self, other: Grouping[Given, K]) -> Pipeline[tuple[K, list[Given]]]: ...
    @overload
    def __or__(self, other: Numbering) -> Pipeline[tuple[int, Given]]: ...
    @overload
    def __or__(self, other: Sliding) -> Pipeline[tuple[Given, ...]]: ...
    @overload
    def __or__(self: Pipeline[list[A]], other: Unbatching) -> Pipeline[A]: ...
    @overload
    def __or__(self, other: Stage[Given, C]) -> Pipeline[C]: ...
    def __or__(self, other: Stage[Any, Any]) -> Pipeline[Any]:
        added = _stage(other).calls
        result: Pipeline[Any] = Pipeline(self.calls + added)
        machine = self.machine
        for number, call in enumerate(added):
            machine = call.build(machine)
            if machine.holds:
                for before in self.calls + added[:number]:
                    before.check_recorded(call)
        result.__dict__["machine"] = machine
        return result

    def __iter__(self) -> Iterator[Given]:
        return iter(Run(self))

    def __len__(self) -> int:
        length = self.machine.length
        if length is None:
            raise TypeError(f"{self!r} has no len(): it can't be known without reading the data")
        if length == math.inf:
            raise TypeError(f"{self!r} has no len(): it is endless; use take(n) to end it")
        return int(length)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Given: ...
    @overload
    def __getitem__(self, index: slice) -> Pipeline[Given]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Given | Pipeline[Given]:
        """Return one item, computed alone; or for a slice, a pipeline."""
        if isinstance(index, slice):
            return self._slice(index)
        wanted = _index(index)
        machine = self.machine
        if machine.item is None or machine.skip is None:
            raise TypeError(f"{self!r} has no random access; use take, skip or a slice")
        number = wanted + len(self) if wanted < 0 else wanted
        begin = machine.init(0)
        length = machine.length
        if length is None:
            length = machine.skip(begin, number + 1)[1] if number >= 0 else 0
        if 0 <= number < length:
            return cast(Given, machine.item(begin, number))
        raise IndexError(f"pipeline index {brief(wanted)} out of range")

    def _slice(self, index: slice) -> Pipeline[Given]:
        given = (index.start, index.stop, index.step)
        start, stop, stride = (None if each is None else _index(each) for each in given)
        if any(each is not None and each < 0 for each in (start, stop)):
            start, stop, _ = slice(start, stop).indices(len(self))
        stride = 1 if stride is None else stride
        if stride < 1:
            raise ArgumentError(
                f"a pipeline can only be sliced forwards: step must be >= 1, got {stride}"
            )
        start = 0 if start is None else start
        result = self
        if start:
            result = result | _public("skip")(start)
        if stop is not None:
            result = result | _public("take")(max(0, stop - start))
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
    """Start a run of a pipeline, optionally from a saved state.

    A resume re-reads only what the stages document.

    `on_error="skip"` skips an item if indexing the source, a `collate`, or the function of a `map`,
    `starmap`, `random_map`, `tap`, `filter`, `flat_map` or `interleave_map` raises. Skipped items
    are counted in `Run.skipped` and in the state. If an iterable fails partway, its remaining
    items count as one. An item also counts as failed if it kills or hangs its worker in
    `processes`, or if a packing stage drops it for its length (`overflow="drop"`, `drop_longer`).
    Other errors are still raised: in `take_while`, `scan`, `flat_scan`, vectorized maps and
    streams, and within the parts of a `zip`, `switch`, `case` or `multiplex`, because skipping
    there would shift other items. Stages that fill the place of a skipped item, such as `batch`,
    have no random access then. So are errors within a pipeline that the function of a `flat_map`
    or `interleave_map` returns: put a stage that may fail after it.

    Args:
        pipeline: The pipeline to run.
        state: State to resume from, as a `State`, its JSON string or its dict; None to start at
            the beginning.
        strict: If True, reject a state that belongs to a different pipeline.
        executor: How items are computed: `inline()`, `threads(...)`, `processes(...)`, ...
        on_error: "raise", or "skip" to skip failing items.

    Returns:
        A `Run`: an iterator and a context manager, with `state`.

    Raises:
        StateMismatch: If the state belongs to a different pipeline, and `strict` is set.
        InvalidState: If the state is damaged, or doesn't fit.

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
    chosen = None if executor is None else as_executor(executor)
    return Run(found, state, strict=strict, executor=chosen, skips=skips)


def _path(value: Any) -> str:
    found = fspath(value) if isinstance(value, (str, PathLike)) else None
    if not isinstance(found, str) or not found:
        raise Unfit("the path of a file")
    return found


def _index(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"a pipeline is indexed with an int or a slice of ints, got {brief(value)} "
            f"({type(value).__name__}); use map for a field of each item, gather for several items"
        ) from None


def _public(name: str) -> Any:
    return registry[name].public


def _stage(other: Any) -> Stage[Any, Any]:
    if isinstance(other, Stage):
        return other
    if isinstance(other, Pipeline):
        raise ArgumentError(
            f"{brief(other)} has its own source and can't follow `|`; "
            "use zip, concat or similar to join pipelines"
        )
    name = getattr(other, "__name__", "")
    if name in registry and registry[name].public is other:
        raise ArgumentError(f"{name} must be called: write | {name}(...)")
    if callable(other):
        raise ArgumentError(f"{show(other)} is not a stage; did you mean | map({show(other)})?")
    place = _place(other)
    remedy = f", but contains some: write parts = ..., then | parts{place}" if place else ""
    raise ArgumentError(f"{brief(other)} ({type(other).__name__}) is not a stage{remedy}")


def _place(parts: Any) -> str:
    """Return the index of the first of several stages, as `split` and `kfold` return them."""
    place = ""
    while isinstance(parts, (dict, list, tuple)) and parts:
        key = next(iter(parts)) if isinstance(parts, dict) else 0
        place, parts = f"{place}[{key!r}]", parts[key]
    return place if isinstance(parts, Stage) else ""
