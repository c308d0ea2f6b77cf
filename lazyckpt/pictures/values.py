"""Descriptions of items: type, shape, dtype, bytes and first values; no item is copied whole."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, NamedTuple

from lazyckpt.core.checks import plural
from lazyckpt.core.secrets import MASK, is_secret, masked
from lazyckpt.core.show import show
from lazyckpt.core.values import is_function
from lazyckpt.pictures.figure import legible

_FEW = 4  # most values shown of an array or a list
_PARTS = 8  # most parts of an item with a line each
_DEEP = 2  # levels of nested parts with a line each
_COUNTED = 1_000  # most parts of a container whose bytes are added up
_MASKED = 1 << 12  # most characters of a text that are searched for secrets
_LONG = 60  # most characters of a value
_UNITS = ("KiB", "MiB", "GiB", "TiB")


class Told(NamedTuple):
    """The description of a value, or of the part of it called `name`."""

    name: str
    type: str
    shape: str
    dtype: str
    size: str
    values: str


def lines(name: str, value: Any, depth: int = _DEEP) -> Iterator[Told]:
    """Yield a line for a value, and for each part of it, unless it is a long row of numbers."""
    yield _told(name, value)
    if depth:
        parts = _parts(value)
        for key, part in islice(parts, _PARTS):
            if is_secret(key.strip("[].'"), part, in_data=True):
                yield Told(f"{name}{key}", type(part).__name__, "", "", "", MASK)
            else:
                yield from lines(f"{name}{key}", part, depth - 1)
        if next(parts, None) is not None:
            more = plural(len(_fields(value) or value) - _PARTS, "more part")
            yield Told(f"{name}...", more, "", "", "", "")


def _told(name: str, value: Any) -> Told:
    shape = _got(value, "shape")
    dtype = _got(value, "dtype")
    return Told(
        name,
        legible(type(value).__name__, _LONG),
        _shape(shape) if isinstance(shape, tuple) else _safe(_length, value),
        "" if dtype is None or isinstance(value, type) else legible(_safe(str, dtype), 40),
        _safe(_size, value),
        abbreviated(value),
    )


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value that have a line each, with the code that gets them."""
    if isinstance(value, Mapping):
        for key in value:
            yield f"[{legible(abbreviated(key), 24)}]", value[key]
    elif fielded := _fields(value):
        for name in fielded:
            yield f".{name}", _got(value, name)
    elif isinstance(value, (tuple, list)) and any(map(_is_rich, islice(value, _PARTS))):
        for number, part in enumerate(value):
            yield f"[{number}]", part


def _fields(value: Any) -> tuple[str, ...]:
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in fields(value))
    names = getattr(type(value), "_fields", ())
    return names if isinstance(value, tuple) and isinstance(names, tuple) else ()


def _is_rich(value: Any) -> bool:
    """Return whether a part of a list needs a line of its own."""
    return isinstance(value, (Mapping, tuple, list)) or isinstance(_got(value, "shape"), tuple)


def _got(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # from a user's property
        return None


def _safe(function: Callable[..., str], value: Any, *more: Any) -> str:
    """Return the description of a value, or its type if a user's method fails."""
    try:
        return function(value, *more)
    except Exception:
        return f"<{type(value).__name__}>"


def _shape(shape: tuple[Any, ...]) -> str:
    return legible(str(tuple(shape)), 40)


def _length(value: Any) -> str:
    if isinstance(value, (str, bytes, bytearray, memoryview, tuple, list, Mapping, Set, range)):
        return f"len {len(value):,}"
    return ""


def _size(value: Any) -> str:
    known, is_all = _bytes(value, [_COUNTED])
    if known is None:
        return ""
    text = f"{known:,} B" if known < 1024 else _rounded(known)
    return text if is_all else f"> {text}"


def _rounded(size: float) -> str:
    power = min(int(math.log(size, 1024)), len(_UNITS))
    return f"{size / 1024**power:,.1f} {_UNITS[power - 1]}"


def _bytes(value: Any, left: list[int]) -> tuple[int | None, bool]:
    """Return the bytes of a value, including its parts, and whether all of them are counted."""
    size = _got(value, "nbytes")
    if isinstance(size, int):
        return size, True
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")), True
    if isinstance(value, (bytes, bytearray)):
        return len(value), True
    if isinstance(value, (Mapping, tuple, list, Set)):
        return _sum(value.values() if isinstance(value, Mapping) else value, left)
    if fielded := _fields(value):
        return _sum((_got(value, name) for name in fielded), left)
    return None if value is None else sys.getsizeof(value), True


def _sum(values: Iterable[Any], left: list[int]) -> tuple[int, bool]:
    total, is_all = 0, True
    for value in values:
        if left[0] <= 0:
            return total, False
        left[0] -= 1
        size, whole = _bytes(value, left)
        total, is_all = total + (size or 0), is_all and whole
    return total, is_all


def abbreviated(value: Any, depth: int = 3) -> str:
    """Return a value as code; reads no more of it than is shown."""
    return legible(masked(_safe(_abbreviated, value, depth), in_data=True), _LONG, in_data=True)


def _abbreviated(value: Any, depth: int) -> str:
    if isinstance(value, (str, bytes, bytearray)):
        begin = value[:_MASKED]
        text = repr((masked(begin, in_data=True) if isinstance(begin, str) else begin)[:_LONG])
        return text if len(value) <= _LONG else f"{text}..."
    if isinstance(_got(value, "shape"), tuple) and hasattr(value, "__getitem__"):
        return _array(value, depth)
    if isinstance(value, Mapping):
        if not depth:
            return "{...}"
        pairs = [f"{_abbreviated(k, 1)}: {_abbreviated(value[k], depth - 1)}" for k in _few(value)]
        return f"{{{', '.join(pairs)}{_more(value)}}}"
    if fielded := _fields(value):
        if not depth:
            return f"{type(value).__name__}(...)"
        parts = [f"{name}={_abbreviated(_got(value, name), depth - 1)}" for name in _few(fielded)]
        return f"{type(value).__name__}({', '.join(parts)}{_more(fielded)})"
    if isinstance(value, (tuple, list, Set)):
        first, last = "{", "}"
        if not isinstance(value, Set):
            first, last = ("[", "]") if isinstance(value, list) else ("(", ")")
        if not depth:
            return f"{first}...{last}"
        parts = [_abbreviated(each, depth - 1) for each in _few(value)]
        return f"{first}{', '.join(parts)}{_more(value)}{last}"
    return _safe(show if is_function(value) or type(value) in (int, range) else repr, value)


def _few(values: Iterable[Any]) -> Iterator[Any]:
    return islice(values, _FEW)


def _more(values: Any) -> str:
    return ", ..." if len(values) > _FEW else ""


def _array(value: Any, depth: int) -> str:
    """Return the first values of the first row."""
    try:
        row, dots = value, ""
        while len(row.shape) > 1:
            dots = ", ..." if row.shape[0] > 1 else dots
            row = row[0]
        if not row.shape:
            return _abbreviated(row.item(), depth - 1) if depth else "..."
        shown = [_abbreviated(each, depth - 1) if depth else "..." for each in row[:_FEW].tolist()]
        dots = ", ..." if row.shape[0] > _FEW else dots
    except Exception:  # from a frame, an empty array or an array of a different library
        return ""
    return f"[{', '.join(shown)}{dots}]"
