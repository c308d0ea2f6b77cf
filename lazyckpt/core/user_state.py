"""A user's own state as an immutable value that may be part of a position.

Lists and dicts become tuples of special types, so that they hash, compare and survive JSON.
Thawing returns new objects, so no step can change a state.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

from lazyckpt.core.checks import Unfit, brief
from lazyckpt.errors import InvalidState

_CLASHES = 1000  # keys with the same hash: a lookup tries them all
_IMMUTABLE = {type(None), bool, int, float, str}
_KINDS = "None, bool, int, float, str, list, dict and tuple"


class FrozenList(tuple[Any, ...]):
    """The items of a list."""

    __slots__ = ()


class FrozenDict(tuple[Any, ...]):
    """The (key, value) pairs of a dict, in its order."""

    __slots__ = ()


class Own(tuple[Any]):
    """A user's own state as part of a position. Two are equal if their JSON is."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is Own and (self is other or _typed(self[0]) == _typed(other[0]))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


def _typed(value: Any) -> list[Any]:
    """Return the contents of a frozen value with its types, which distinguish 1 from True.

    It processes one level at a time from a list, because recursion has a limit.
    """
    found, left = list[Any](), [value]
    while left:
        each = left.pop()
        kind = type(each)
        if isinstance(each, tuple):
            found.append((kind, len(each)))
            left.extend(each)
        else:  # nan is nan, and -0.0 no 0.0
            found.append((kind, repr(each) if kind is float else each))
    return found


def freeze(value: Any, stage: str) -> Own:
    """Make a value immutable; raise an `InvalidState` naming the stage if it is no JSON or tuple.

    >>> thaw(freeze({"seen": [1, 2]}, "scan"))
    {'seen': [1, 2]}
    """
    return Own((_frozen(value, stage),))


def thaw(own: Own) -> Any:
    """Restore a frozen value, as new objects."""
    if type(own) is not Own:
        raise InvalidState(f"a state contains {brief(own)} in place of the user's own state")
    try:
        return _thawed(own[0])
    except (TypeError, RecursionError) as error:
        raise InvalidState(f"the user's own state can't be restored: {error}") from None


def copied(value: Any, stage: str) -> Any:
    """Return an immutable value as it is, and a private copy of any other."""
    if type(value) in _IMMUTABLE:
        return value
    try:
        return deepcopy(value)
    except Exception as error:
        raise InvalidState(f"{stage}: its state can't be copied: {brief(value)}") from error


def storable(value: Any) -> Any:
    """Check an argument that begins a user's own state."""
    try:
        freeze(value, "")
    except InvalidState:
        raise Unfit(f"made of {_KINDS}") from None
    return value


def _frozen(value: Any, stage: str) -> Any:
    kind = type(value)
    if kind in _IMMUTABLE:
        return value if value == value else math.nan
    if kind is tuple:
        return tuple([_frozen(v, stage) for v in value])
    if kind is list:
        return FrozenList([_frozen(v, stage) for v in value])
    if kind is dict:
        return FrozenDict([(_frozen(k, stage), _frozen(v, stage)) for k, v in value.items()])
    raise InvalidState(
        f"{stage}: its state must be made of {_KINDS}, got {brief(value)} ({kind.__name__})"
    )


def _thawed(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return tuple([_thawed(v) for v in value])
    if kind is FrozenList:
        return [_thawed(v) for v in value]
    if kind is FrozenDict:
        keys = [_thawed(k) for k, _ in value]
        if len(keys) - len(set(map(hash, keys))) > _CLASHES:
            raise InvalidState("a dict has too many keys with the same hash")
        return dict(zip(keys, [_thawed(v) for _, v in value], strict=True))
    return value
