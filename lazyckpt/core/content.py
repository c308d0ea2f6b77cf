"""What values hold, as JSON that is the same in every process, with digests of what is long."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from hashlib import blake2b
from typing import Any

import numpy as np

_BYTES = 8  # of a digest
_LONG = 40  # characters of JSON from which a digest is shorter
_PLAIN: set[type] = {type(None), bool, int, float}
# Where types are from whose `repr` says all.
_BY_REPR = {"datetime", "decimal", "fractions", "pathlib", "uuid", "zoneinfo"}

_dumps = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def content(value: Any) -> Any:
    """What a function is called with, as a state has it.

    Equal values give equal results, in any process; others don't. A text is a digest, as nobody
    can tell which is a password. What has no contents to compare, such as a function or
    an object of a class of one's own, gives the name of its type.
    """
    found = _content(value)
    return found if value is None or type(value) in _PLAIN else _short(found)


def _short(found: Any) -> Any:
    text = _dumps(found)
    return found if len(text) <= _LONG else f"#{_digest(text.encode())}"


def _content(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, Enum):
        return [_name(kind), value.name]
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        text = str(value)
        value, kind = value.item(), type(value.item())
        if kind not in _PLAIN:
            return [_name(kind), text]
    if kind in (bool, type(None)):
        return value
    if kind in (int, float):  # of which JSON readers take some for others
        return value if abs(value) < 1 << 53 else [kind.__name__, repr(value)]
    if kind in (str, bytes, bytearray):
        data = value.encode("utf-8", "surrogatepass") if kind is str else value
        return [kind.__name__, _digest(data)]
    if kind in (list, tuple):
        return [kind.__name__, *map(_content, value)]
    if kind in (dict, set, frozenset):
        pairs = [_content(pair) for pair in (value.items() if kind is dict else value)]
        return [kind.__name__, *sorted(pairs, key=_dumps)]  # equal ones may have other orders
    if isinstance(value, (np.ndarray, np.void)):
        return [_name(kind), str(value.dtype), list(value.shape), _items(value)]
    if kind in (complex, range, slice) or kind.__module__.partition(".")[0] in _BY_REPR:
        return [kind.__qualname__, repr(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, each.name) for each in dataclasses.fields(value) if each.compare]
        return [_name(kind), *map(_content, fields)]
    if isinstance(value, tuple):  # a named one
        return [_name(kind), *map(_content, value)]
    own = getattr(value, "digest", None)  # of what tells itself apart
    return [_name(kind), own] if isinstance(own, str) else [_name(kind)]


def _items(value: Any) -> Any:
    if value.dtype.hasobject:
        return [_content(each) for each in value.ravel().tolist()]
    return _digest(np.ascontiguousarray(value).tobytes())


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _digest(data: Any) -> str:
    return blake2b(data, digest_size=_BYTES).hexdigest()
