"""Turning a function from arguments to a machine into a combinator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, get_args

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import Check, signature_of
from lazyckpt.core.cut import Cut
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Combinator, Elastic, Role, registry
from lazyckpt.core.show import written_at
from lazyckpt.errors import ArgumentError

_RIGID = Elastic()


class Options(TypedDict, total=False):
    """The keywords that `combinator` and `source_combinator` share."""

    checks: Mapping[str, Check]
    validate: Callable[..., None]
    unrecorded: tuple[str, ...]
    functions: Mapping[str, Role] | Callable[..., Mapping[str, Role]]
    elastic: Elastic
    trace: Callable[..., Any]
    dropped: Callable[..., Callable[[Any], str | None] | None]
    by_length: Callable[[Any], Cut]
    itemwise: bool
    registered: bool


def define(
    build: Callable[..., Machine[Any]],
    wrap: Callable[[Call], Chain],
    *,
    is_source: bool,
    keeps_items: bool = False,
    pointwise: bool = False,
    itemwise: bool = False,
    checks: Mapping[str, Check] | None = None,
    validate: Callable[..., None] | None = None,
    describe: Callable[..., dict[str, Any]] | None = None,
    sized: bool = False,
    unrecorded: tuple[str, ...] = (),
    functions: Mapping[str, Role] | Callable[..., Mapping[str, Role]] | None = None,
    elastic: Elastic = _RIGID,
    trace: Callable[..., Any] | None = None,
    dropped: Callable[..., Callable[[Any], str | None] | None] | None = None,
    by_length: Callable[[Any], Cut] | None = None,
    registered: bool = True,
) -> Callable[..., Any]:
    """Register a combinator and return its public function, which stores the call."""
    signature = signature_of(build)
    if not is_source:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    def public(*args: Any, **kwargs: Any) -> Chain:
        return wrap(Call(combinator, combinator.bind(args, kwargs), written_at()))

    roles = {} if functions is None or callable(functions) else functions
    for name in (*unrecorded, *roles):
        if name not in signature.parameters:
            raise ArgumentError(f"{build.__name__}: there is no argument {name!r}")
    for name, role in roles.items():
        if role not in get_args(Role):
            raise ArgumentError(f"{build.__name__}: {role!r} is not a role of {name}")

    public.__name__ = public.__qualname__ = build.__name__
    public.__module__ = build.__module__
    public.__doc__ = build.__doc__
    shown = signature.replace(return_annotation=_returned(build, is_source))
    public.__signature__ = shown  # type: ignore[attr-defined]  # read by inspect
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    combinator = Combinator(
        name=build.__name__,
        build=build,
        public=public,
        signature=inspect.Signature(bare),
        is_source=is_source,
        keeps_items=keeps_items,
        pointwise=pointwise,
        itemwise=itemwise,
        checks=checks or {},
        validate=validate,
        describe=describe,
        sized=sized,
        unrecorded=frozenset(unrecorded),
        functions=functions or {},
        elastic=elastic,
        trace=trace,
        dropped=dropped,
        by_length=by_length,
    )
    public.combinator = combinator  # type: ignore[attr-defined]  # unpickled calls find it here
    if registered:
        _register(combinator)
    return public


def internal(build: Callable[..., Machine[Any]], **options: Any) -> Any:
    """Return a combinator that isn't registered: no user's pipeline has its stages."""
    return define(build, lambda call: Chain((call,)), is_source=False, registered=False, **options)


def _register(combinator: Combinator) -> None:
    known = registry.get(combinator.name)
    if known is not None and known.build.__module__ != combinator.build.__module__:
        raise ArgumentError(
            f"a combinator named {combinator.name} already exists, from "
            f"{known.build.__module__}; states and pickles use the name, so choose a different one"
        )
    registry[combinator.name] = combinator


def _returned(build: Callable[..., Any], is_source: bool) -> Any:
    """Return the users' annotation, `Stage[A, B]` or `Pipeline[T]`, in place of the machine's."""
    found = signature_of(build)
    given = _item(found.return_annotation)
    if is_source:
        return f"Pipeline[{given}]"
    first = next(iter(found.parameters.values()), None)
    return f"Stage[{_item(first and first.annotation)}, {given}]"


def _item(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else repr(annotation)
    matched = re.fullmatch(r".*?Machine\[(.*)\]", text)
    return matched[1] if matched else "Any"
