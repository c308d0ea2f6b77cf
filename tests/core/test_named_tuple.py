"""`NamedTuple` is what `typing.NamedTuple` is, whoever looks at it."""

from __future__ import annotations

import inspect
import pickle
import typing
from typing import Any, Generic, TypeVar

import pytest

from lazyckpt.core import named_tuple

T = TypeVar("T")


def made(base: Any, name: str) -> Any:
    class Pair(base, Generic[T]):  # type: ignore[misc]  # mypy sees no fields in it
        """A pair."""

        first: int
        second: list[T]
        third: str = "c"
        fourth: Any = None

        @property
        def doubled(self) -> int:
            return 2 * int(self.first)

        @classmethod
        def empty(cls) -> Any:
            return cls(0, [])

        def __repr__(self) -> str:
            return f"Pair {self.first}"

    Pair.__qualname__ = name  # by which it is pickled
    return Pair


Ours, Theirs = made(named_tuple.NamedTuple, "Ours"), made(typing.NamedTuple, "Theirs")


LOOKS: dict[str, typing.Callable[[Any], Any]] = {
    "doc": lambda kind: kind.__doc__,
    "module": lambda kind: kind.__module__,
    "bases": lambda kind: kind.__bases__,
    "fields": lambda kind: kind._fields,
    "defaults": lambda kind: kind._field_defaults,
    "hints": typing.get_type_hints,
    "parameters": lambda kind: kind.__parameters__,
    "names of arguments": lambda kind: list(inspect.signature(kind).parameters),
    "arguments": lambda kind: kind[int].__args__,
    "a field's doc": lambda kind: kind.second.__doc__,
    "made": lambda kind: kind(1, [2])._asdict(),
    "replaced": lambda kind: tuple(kind(1, [2])._replace(third="d")),
    "a property": lambda kind: kind(3, []).doubled,
    "a class method": lambda kind: tuple(kind.empty()),
    "a method of its own": lambda kind: repr(kind(1, [])),
    "equal": lambda kind: kind(1, [2]) == (1, [2], "c", None),
    "pickled": lambda kind: type(pickle.loads(pickle.dumps(kind(1, [2])))) is kind,
    "no dict": lambda kind: hasattr(kind(1, []), "__dict__"),
    "matched": lambda kind: kind.__match_args__,
}


@pytest.mark.parametrize("look", LOOKS)
def test_it_looks_like_that_of_typing(look: str) -> None:
    assert LOOKS[look](Ours) == LOOKS[look](Theirs)


@pytest.mark.parametrize("arguments", [(), (1,), (1, [], "", 0, 0)])
def test_it_refuses_what_that_of_typing_does(arguments: tuple[Any, ...]) -> None:
    said = []
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError) as caught:
            kind(*arguments)
        said.append(str(caught.value))
    assert said[0] == said[1]
