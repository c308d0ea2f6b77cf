"""What makes combinators of functions: `combinator`, `source_combinator`, `composite`."""

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
    """Make a combinator of a function from the upstream machine and arguments to a machine.

    The upstream parameter vanishes from the public signature; the function's
    name is the combinator's. `stateless` and `stateful` make its machine, of a
    `step`, or of a `flow`, whose `snapshot` is the position that it was opened at
    before the first `next`, and after each item the one behind it.

    A state records the contents of the arguments, as of those of a `composite`. An argument
    without contents to compare is an `ArgumentError` when the stage is made.

    Args:
        keeps_items: Whether it passes items on as they are, whatever they are.
        pointwise: Whether it makes each item of one item and its place alone, so that
            an executor may make many at a time.
        itemwise: Whether it makes any number of items of each one, whatever came before,
            and keeps nothing from one to the next.
        checks: A check for each argument, from `lazyckpt.core.checks`.
        validate: Called with all arguments, to refuse what doesn't go together.
        unrecorded: Arguments that change no order, which a state doesn't mind.
        functions: The functions among the arguments, with what each does: see
            `lazyckpt.core.registry.Role`. By these alone the stage looks at items.
        elastic: What `rebase` may change, and how: see `lazyckpt.core.registry.Elastic`.
        trace: From the stored call and a `lazyckpt.lineage.tracing.Tracing` to a stage that
            takes and gives items with their origins and has the same positions, where no
            other option tells which items went into one; see `lazyckpt.trace`.
        dropped: From all arguments to a function that says why an item is too much for the
            stage, which drops it, or None; or to None where it drops nothing. What is
            dropped counts among what `on_error="skip"` leaves out.
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
    keeps_items: bool = False,
    describe: Callable[..., dict[str, Any]] | None = None,
    sized: bool = False,
    **options: Unpack[Options],
) -> Callable[[Callable[P, Machine[B]]], Callable[P, Pipeline[B]]]:
    """Make a source of a function from arguments to a machine, by `sourced` or `joining`.

    Args:
        keeps_items: Of what joins pipelines: whether it passes their items on as they are,
            alone or several in a tuple.
        describe: What a state remembers of the arguments, as JSON; by default all that
            decide the order.
        sized: Whether it remembers the length of the data too, as it was when the machine
            was made, for data may change.
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
    """Tell type checkers, and them alone, which stages a combinator makes.

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
    """Make a named stage, or source, of a function that composes stages.

    Its arguments are part of a state's identity, also if a closure hides them
    from the stages that it is made of. A state records their contents: numbers, texts,
    bytes, lists, tuples, dicts, sets, dataclasses, enums, paths and arrays. A class of
    your own needs a `digest`, a str that tells one object from another. Functions are
    not recorded, nor texts given by names such as `password` and `api_key`.

    Args:
        make: The function, which returns stages composed by `|`.
        checks: A check for each argument, from `lazyckpt.core.checks`.
        unrecorded: Arguments that change no order, which a state doesn't mind.

    Raises:
        ArgumentError: When the stage is made, if an argument has no contents to compare.

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
    public.combinator = known  # type: ignore[attr-defined]  # where unpickled calls find it
    return public


def _staged(call: Call) -> Stage[Any, Any]:
    return Stage((call,))


def _started(call: Call) -> Pipeline[Any]:
    pipeline: Pipeline[Any] = Pipeline((call,))
    _ = pipeline.machine  # bad data is refused here, not when first read
    return pipeline
