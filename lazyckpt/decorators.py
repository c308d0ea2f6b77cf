"""Decorators that make combinators of functions: `combinator`, `source_combinator`, `composite`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import Check, brief, signature_of
from lazyckpt.core.define import Options, define
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Combinator
from lazyckpt.core.show import written_at
from lazyckpt.core.stages import passing
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import (
    Grouping,
    Keeping,
    Listing,
    Numbering,
    Pipeline,
    Sliding,
    Stage,
    Unbatching,
)

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K")
P = ParamSpec("P")
Composed = TypeVar("Composed", bound=Chain)


@overload
def combinator(
    *, keeps_items: Literal[True], pointwise: bool = False, **options: Unpack[Options]
) -> Callable[[Callable[Concatenate[Machine[A], P], Machine[A]]], Callable[P, Keeping[object]]]: ...
@overload
def combinator(
    *, pointwise: bool = False, **options: Unpack[Options]
) -> Callable[[Callable[Concatenate[Machine[A], P], Machine[B]]], Callable[P, Stage[A, B]]]: ...
def combinator(
    *, keeps_items: bool = False, pointwise: bool = False, **options: Unpack[Options]
) -> Any:
    """Turn a function from an upstream machine and arguments to a machine into a combinator.

    The upstream parameter disappears from the public signature; the function's name becomes the
    combinator's. Build the machine with `stateless` or `stateful`, from a `step` function or a
    `flow`. A flow's `snapshot` returns the position it was opened at until the first `next`, then
    the position after the latest item.

    A state records the contents of the arguments, as for a `composite`. An argument without
    comparable contents raises an `ArgumentError` when the stage is built.

    Args:
        keeps_items: If True, the stage passes items of any type on unchanged.
        pointwise: If True, each output depends only on one item and its position, so an executor
            may compute many in parallel.
        itemwise: If True, each item yields any number of outputs, independently of other items,
            and nothing is carried from one item to the next.
        checks: A check per argument, from `lazyckpt.core.checks`.
        validate: Function of all arguments that refuses invalid combinations.
        unrecorded: Arguments that don't change the order, and are not recorded in a state.
        functions: The arguments that are functions, each with its role: see
            `lazyckpt.core.registry.Role`. The stage looks at items only through them.
        elastic: The changes that `rebase` allows, and how: see `lazyckpt.core.registry.Elastic`.
        trace: Function from the stored call and a `lazyckpt.lineage.tracing.Tracing` to a stage
            that takes and yields items with their origins and has the same positions. It is
            needed only if no other option shows which items went into an output; see
            `lazyckpt.trace`.
        dropped: Function of all arguments that returns None if the stage drops nothing, otherwise
            a function from an item to the reason for dropping it, or None. `on_error="skip"`
            counts dropped items among the skipped ones.
        by_length: For a stage that looks only at the lengths of sequences, and whose flow reads
            them in its pending function: a function from an item to a `lazyckpt.core.cut.Cut` of
            all of it. The stage also takes such cuts as items.
        registered: If True, add it to `lazyckpt.registry`; inner stages of a library need not be.

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
    keeps_items: bool = False,
    describe: Callable[..., dict[str, Any]] | None = None,
    sized: bool = False,
    **options: Unpack[Options],
) -> Callable[[Callable[P, Machine[B]]], Callable[P, Pipeline[B]]]:
    """Turn a function from arguments to a machine into a source, with `sourced` or `joining`.

    Args:
        keeps_items: For a stage that joins pipelines: if True, it passes their items on
            unchanged, alone or several in a tuple.
        describe: Function from the arguments to the JSON that a state records; by default all
            arguments that decide the order.
        sized: If True, a state also records the length of the data when the machine was built,
            because data may change.
        options: As for `combinator`.
    """

    def wrap(build: Callable[P, Machine[B]]) -> Any:
        return define(
            build,
            _started,
            is_source=True,
            keeps_items=keeps_items,
            describe=describe,
            sized=sized,
            **options,
        )

    return wrap


@overload
def giving(
    shape: type[Keeping[Any]],
) -> Callable[[Callable[P, Stage[A, B]]], Callable[P, Keeping[A]]]: ...
@overload
def giving(
    shape: type[Listing[Any]],
) -> Callable[[Callable[P, Stage[A, B]]], Callable[P, Listing[A]]]: ...
@overload
def giving(
    shape: type[Grouping[Any, Any]],
) -> Callable[[Callable[P, Stage[A, tuple[K, B]]]], Callable[P, Grouping[A, K]]]: ...
@overload
def giving(
    shape: type[Numbering],
) -> Callable[[Callable[P, Stage[Any, Any]]], Callable[P, Numbering]]: ...
@overload
def giving(
    shape: type[Sliding],
) -> Callable[[Callable[P, Stage[Any, Any]]], Callable[P, Sliding]]: ...
@overload
def giving(
    shape: type[Unbatching],
) -> Callable[[Callable[P, Stage[Any, Any]]], Callable[P, Unbatching]]: ...
def giving(shape: Any) -> Any:
    """Tell type checkers, and only them, which stages a combinator builds.

    >>> from lazyckpt.core.machine import Machine
    >>> from lazyckpt.pipeline import Listing
    >>> @giving(Listing)
    ... @combinator(registered=False)
    ... def chunks(upstream: Machine[A]) -> Machine[list[A]]: ...
    >>> # words | chunks() is a Pipeline[list[str]] if words is a Pipeline[str]
    """
    return lambda public: public


@overload
def composite(make: Callable[P, Composed], /) -> Callable[P, Composed]: ...
@overload
def composite(
    *, checks: Mapping[str, Check] | None = None, unrecorded: tuple[str, ...] = ()
) -> Callable[[Callable[P, Composed]], Callable[P, Composed]]: ...
def composite(
    make: Callable[P, Composed] | None = None,
    *,
    checks: Mapping[str, Check] | None = None,
    unrecorded: tuple[str, ...] = (),
) -> Any:
    """Turn a function that composes stages into a named stage or source.

    Its arguments are part of a state's identity, even if a closure hides them from the composed
    stages. A state records their contents: numbers, strings, bytes, lists, tuples, dicts, sets,
    dataclasses, enums, paths and arrays. A class of your own needs a `digest`, a str that
    identifies an object. Functions are not recorded, nor are strings with names such as `password`
    and `api_key`.

    Args:
        make: The function; it returns stages composed by `|`.
        checks: A check per argument, from `lazyckpt.core.checks`.
        unrecorded: Arguments that don't change the order, and are not recorded in a state.

    Raises:
        ArgumentError: If an argument has no comparable contents; raised when the stage is built.

    >>> import lazyckpt as lz
    >>> @lz.composite
    ... def windows(seconds: float, *, seed: int):
    ...     return lz.map(lambda x: x * seconds) | lz.shuffle(seed=seed)
    >>> pipeline = lz.source([1, 2, 3]) | windows(0.5, seed=0)
    >>> pipeline
    source([1, 2, 3]) | windows(0.5, seed=0)
    >>> lz.init(pipeline)
    State(items=0)
      source(length=3)              epoch 0 · item 0
      map()
      shuffle(seed=0)               0
      windows(seconds=0.5, seed=0)
    """
    if make is None:
        return lambda found: _composite(found, checks, unrecorded)
    return _composite(make, checks, unrecorded)


def _composite(
    make: Callable[P, Composed], checks: Mapping[str, Check] | None, unrecorded: tuple[str, ...]
) -> Callable[P, Composed]:
    def mark(upstream: Machine[Any], /, *args: Any, **kwargs: Any) -> Machine[Any]:
        return passing(upstream)

    signature = signature_of(make)
    first = inspect.Parameter("upstream", inspect.Parameter.POSITIONAL_ONLY)
    wraps(make)(mark)
    mark.__signature__ = signature.replace(  # type: ignore[attr-defined]  # unknown to mypy
        parameters=[first, *signature.parameters.values()]
    )
    marked: Any = define(
        mark,
        _staged,
        is_source=False,
        keeps_items=True,
        checks=checks,
        unrecorded=unrecorded,
        registered=False,
    )

    @wraps(make)
    def public(*args: P.args, **kwargs: P.kwargs) -> Composed:
        arguments = known.bind(args, kwargs)
        made = make(*args, **kwargs)
        if not isinstance(made, (Stage, Pipeline)):
            raise ArgumentError(
                f"{make.__name__}: a composite must return stages, got {brief(made)}"
            )
        return type(made)((*made.calls, Call(known, arguments, written_at(), len(made.calls))))

    known: Combinator = marked.combinator._replace(public=public)
    public.combinator = known  # type: ignore[attr-defined]  # unpickled calls find it here
    return public


def _staged(call: Call) -> Stage[Any, Any]:
    return Stage((call,))


def _started(call: Call) -> Pipeline[Any]:
    pipeline: Pipeline[Any] = Pipeline((call,))
    _ = pipeline.machine  # bad data is refused here, not when first read
    return pipeline
