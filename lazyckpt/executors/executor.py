"""The base class of executors, which are values: where a run's items are computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.checks import brief, is_integer, signature_of
from lazyckpt.core.show import show
from lazyckpt.core.values import Frozen, same
from lazyckpt.errors import ArgumentError

if TYPE_CHECKING:
    from lazyckpt.executors.session import Session

# Stages as text, indented for joined pipelines; the place where they run; and the stages
# themselves: () for the second half of a stage, None for a line that sums up other pipelines.
Part = tuple[tuple[str, ...], str, tuple[Call, ...] | None]

_option = inspect.Parameter("option", inspect.Parameter.KEYWORD_ONLY)


class Executor(Frozen):
    """Computes the items of a run. It changes no item, no order and no state.

    Like a pipeline, an executor is a value: frozen, compared by value, and picklable if its
    arguments are.
    """

    __slots__ = ("arguments", "public")

    arguments: Mapping[str, Any]
    public: Callable[..., Any]

    def __init__(self, public: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        object.__setattr__(self, "public", public)
        object.__setattr__(self, "arguments", arguments)

    def open(self, chain: Chain) -> Session | None:
        """Start a session for a pipeline. None if the consumer computes all items itself."""
        return None

    def explain(self, chain: Chain) -> list[Part]:
        """Return the groups of stages that run together, and where each group runs."""
        where = "in the consumer's thread, on demand; no prefetch"
        return [(tuple(map(repr, chain.written)), where, chain.calls)]

    def memory(self, chain: Chain) -> list[str]:
        """Describe the memory used by prefetched items beyond the counts in `explain`."""
        return []

    def __repr__(self) -> str:
        parameters = signature_of(self.public).parameters
        shown = []
        for name, value in self.arguments.items():
            parameter = parameters.get(name, _option)
            if not same(value, parameter.default):
                is_positional = parameter.kind is not parameter.KEYWORD_ONLY
                is_bare = is_positional and parameter.default is parameter.empty
                text = repr(value) if isinstance(value, Executor) else show(value, name)
                shown.append(text if is_bare else f"{name}={text}")
        return f"{self.public.__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Executor):
            return NotImplemented
        return self.public is other.public and same(dict(self.arguments), dict(other.arguments))

    def __hash__(self) -> int:
        return hash((self.public.__name__, tuple(map(show, self.arguments.values()))))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.public, dict(self.arguments))


def _restored(
    kind: type[Executor], public: Callable[..., Executor], arguments: dict[str, Any]
) -> Executor:
    return kind(public, arguments)


def as_executor(value: Any) -> Executor | None:
    """Return the value if it is an executor or None; raise `ArgumentError` otherwise."""
    if value is None or isinstance(value, Executor):
        return value
    remedy = ""
    if callable(getattr(value, "submit", None)):
        remedy = f"; write futures({show(value)}, buffer_size=...)"
    elif callable(value):
        remedy = f"; write {show(value)}()"
    elif hasattr(value, "to_json"):
        remedy = "; write state=..."
    elif is_integer(value):
        remedy = f"; write threads({value}) or processes({value})"
    raise ArgumentError(f"run: executor must be an executor, got {brief(value)}{remedy}")
