"""Values as JSON: arguments by their contents, in one direction, and positions, in both.

Numbers and strings represent themselves, and a tuple is a list. Any other value is an object
with one key, its kind: `{"list": [1, 2]}`, `{"float": "nan"}`, `{"int64[3]": "1f0c..."}`.
An `Entry` is a stage as recorded in a state; the size budget of entries is defined here too.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import sys
from array import array
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MappingProxyType, MethodType, SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyckpt.core.checks import Shown, Unfit, brief
from lazyckpt.core.frames import frame_values, is_frame, kinds
from lazyckpt.core.secrets import MASK, is_secret, masked
from lazyckpt.core.user_state import FrozenDict, FrozenList, Own
from lazyckpt.core.values import is_function
from lazyckpt.errors import InvalidState

_EXACT = 1 << 53  # ints below survive every JSON reader
_DIGITS = 1 << 16  # of a hexadecimal int; showing more in an error is slow
_NUMBERS: set[type] = {type(None), bool, int, float}
# Modules, and their classes with a complete `repr`.
_BY_REPR = {
    *("datetime", "decimal", "fractions", "uuid", "zoneinfo", "torch.dtype", "torch.device"),
    *("pandas.Timestamp", "pandas.Timedelta", "pandas.Interval"),
}

# JSON in its one form here; 1, 1.0 and true differ.
dumps = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def digest(data: str | bytes) -> str:
    """Return sixteen hexadecimal digits that identify a string or bytes."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=8).hexdigest()


def content(value: Any, name: str | None = "", *, is_strict: bool = True) -> Any:
    """Return an argument as JSON that is the same for equal values only, in any process.

    Credentials are left out: strings by their argument names, and parts of strings.

    Args:
        value: The argument.
        name: Its name, or None if it has none: then any string may be a password, so a digest
            represents it.
        is_strict: If True, raise `Unfit` for a value without comparable contents; if False, the
            name of its type represents it.
    """
    return (_STRICT if is_strict else _LENIENT).of(value, name)


def check_content(value: Any) -> None:
    """Raise `Unfit` if a value has no comparable contents. Reads no arrays and no pipelines."""
    try:
        _UNREAD.of(value, "")
    except RecursionError:
        raise Unfit("of bounded depth, not containing itself") from None


def alike_functions(one: Any, other: Any) -> bool:
    """Return whether two functions do the same, as far as can be seen: same code, equal values."""
    try:
        return _alike(one, other)
    except Exception:  # recursive values, unset variables, an error in `==`
        return False


def _alike(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, Shown) and hasattr(one, "calls"):  # a pipeline, or stages
        calls: list[Any] = [each.calls for each in (one, other)]
        return _alike(*([(each.name, each.arguments) for each in some] for some in calls))
    if isinstance(one, (set, frozenset)):
        return bool(one == other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return [*one] == [*other] and all(map(_alike, one.values(), other.values()))
    if isinstance(one, (FunctionType, MethodType, partial)):
        return _alike(_parts(one), _parts(other))
    if isinstance(one, CodeType):
        return _anywhere(one) == _anywhere(other)
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        fields = [each.name for each in dataclasses.fields(one)]
        return all(_alike(getattr(one, each), getattr(other, each)) for each in fields)
    if not is_function(one):
        with suppress(Unfit):
            return bool(content(one, None) == content(other, None))
    if one == other:
        return True
    before, after = _held(one), _held(other)
    return bool(before or after) and _alike(before, after)


def _anywhere(code: CodeType) -> CodeType:
    """Return code without its lines and columns: a function may move in its file or notebook."""
    consts = [_anywhere(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=tuple(consts))


def _held(value: Any) -> dict[str, Any]:
    """Return the attributes of an object: its variables and slots."""
    found: dict[str, Any] = {**getattr(value, "__dict__", {})}
    for kind in type(value).__mro__:
        slots: Any = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            if name.startswith("__") and not name.endswith("__"):  # the mangled name
                name = f"_{kind.__name__.lstrip('_')}{name}"
            found[name] = getattr(value, name, None)
    return found


def _parts(function: Any) -> list[Any]:
    """Return the parts that decide a function's behaviour, except global names that it reads."""
    if isinstance(function, partial):
        return [function.func, function.args, function.keywords]
    if isinstance(function, MethodType):
        return [function.__func__, function.__self__]
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    own = [function.__defaults__, function.__kwdefaults__, vars(function)]
    return [function.__code__, *own, held]


def is_reader(data: Any) -> bool:
    """Return whether data describe their own files: `Rows` of `lazyckpt.io`."""
    return hasattr(type(data), "source_identity")


class _Contents:
    """Turns values into JSON.

    - `is_strict`: whether a value without comparable contents raises `Unfit`
    - `is_read`: whether arrays and pipelines are read; they have contents in any case
    """

    def __init__(self, *, is_strict: bool, is_read: bool) -> None:
        self._is_strict, self._is_read = is_strict, is_read

    def of(self, value: Any, name: str | None) -> Any:
        """Return the contents of a value passed as `name`."""
        if type(value) in _NUMBERS:
            return _number(value)
        if is_secret(name, value, in_data=True):
            return MASK
        if isinstance(value, np.generic):
            if value.dtype.kind not in "biufSUV" or value.dtype.char == "g":
                return {type(value).__name__: str(value)}
            return self.of(value.item(), name)
        kind = type(value)
        if isinstance(value, Enum):
            return {kind.__qualname__: value.name or self.of(value.value, name)}
        if isinstance(value, str):
            found = self._text(value, name)
            return found if kind is str else {kind.__qualname__: found}
        if isinstance(value, (bytes, bytearray)):
            return {kind.__name__: digest(bytes(value))}
        if isinstance(value, (list, tuple)):
            found = self._items(value, name)
            is_plain = isinstance(value, tuple) and not hasattr(value, "_fields")
            return found if is_plain else {kind.__qualname__: found}
        if isinstance(value, dict):
            pairs = [[self.of(k, name), self.of(v, _key(k, name))] for k, v in value.items()]
            if not isinstance(value, OrderedDict):  # equal dicts may differ in order
                pairs.sort(key=dumps)
            return {kind.__qualname__: pairs}
        if isinstance(value, (set, frozenset)):
            return {kind.__qualname__: sorted([self.of(v, name) for v in value], key=dumps)}
        if isinstance(value, np.ma.MaskedArray):
            return {kind.__qualname__: [self.of(each, name) for each in (value.data, value.mask)]}
        if isinstance(value, np.matrix):
            return {kind.__qualname__: self.of(np.asarray(value), name)}
        if isinstance(value, np.ndarray):
            return {f"{value.dtype}{list(value.shape)}": self._array(value)}
        return self._object(value, kind, name)

    def _text(self, value: str, name: str | None) -> Any:
        text = masked(value)
        if name is None or is_secret(name, value) or text.startswith("#"):  # as digests do
            return {"str": digest(text)}
        return text

    def _items(self, value: Any, name: str | None) -> list[Any]:
        if _NUMBERS.issuperset(map(type, value)):
            return [*map(_number, value)]
        names = getattr(value, "_fields", None) or [name] * len(value)
        return [self.of(each, name) for each, name in zip(value, names, strict=True)]

    def _array(self, value: Any) -> str:
        kind = value.dtype
        if kind.hasobject or kind.names or kind.char in "gG":  # its bytes have gaps, or addresses
            return digest(dumps([self.of(each, "") for each in value.ravel()]))
        return digest(value.tobytes()) if self._is_read else ""

    def _object(self, value: Any, kind: type, name: str | None) -> Any:
        tag = kind.__qualname__
        if isinstance(value, np.dtype):
            return {"dtype": str(value)}
        if isinstance(value, slice):
            return {tag: self.of((value.start, value.stop, value.step), name)}
        if isinstance(value, (UserDict, ChainMap, MappingProxyType)):
            return {tag: self.of(dict(value), name)}
        if isinstance(value, SimpleNamespace):
            return {tag: self.of(vars(value), name)}
        if isinstance(value, (deque, UserList, array, memoryview)):
            most = getattr(value, "maxlen", None)  # for a deque
            return {tag: self.of(([*value], most), name)}
        if "torch.Tensor" in kinds(value) and _is_dense(value):
            found = digest(_tensor_bytes(value)) if self._is_read else ""
            return {f"{value.dtype}{list(value.shape)}": found}
        if is_frame(value):
            return {tag: digest(dumps(self.of(frame_values(value), None)) if self._is_read else "")}
        if "pandas.Index" in kinds(value):
            return {tag: self.of(value.to_numpy(), name)}
        module = kind.__module__.partition(".")[0]
        if kind in (complex, range) or not _BY_REPR.isdisjoint([module, *kinds(value)]):
            return {tag: masked(repr(value))}
        if isinstance(value, os.PathLike):
            return {"path": masked(os.fsdecode(value))}
        if isinstance(value, re.Pattern):
            return {tag: self.of((value.pattern, value.flags), name)}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [each.name for each in dataclasses.fields(value) if each.compare]
            return {tag: [self.of(getattr(value, each), each) for each in fields]}
        if isinstance(value, Shown) and not self._is_read:  # a pipeline, or stages
            return {tag: ""}
        own = getattr(value, "digest", None)  # an object with its own identity
        if isinstance(own, str):
            return {tag: own}
        if isinstance(value, (int, float)):  # of a user's class
            return {tag: _number(value.real)}
        if is_function(value):
            return {"function": None}
        if self._is_strict:
            raise Unfit(
                "comparable by contents, like numbers, strings, bytes, lists, tuples, dicts, sets, "
                f"dataclasses, enums, paths and arrays; {brief(value)} isn't: give {tag} a "
                "digest, a str that identifies an object, or list the argument in "
                "unrecorded=(...) if it doesn't change the order"
            )
        return {tag: None}


_STRICT = _Contents(is_strict=True, is_read=True)
_LENIENT = _Contents(is_strict=False, is_read=True)
_UNREAD = _Contents(is_strict=True, is_read=False)


def _is_dense(tensor: Any) -> bool:
    return str(tensor.layout) == "torch.strided" and tensor.device.type != "meta"


def _tensor_bytes(value: Any) -> bytes:
    """Return a tensor's bytes, also for types that NumPy lacks."""
    flat = value.detach().cpu().resolve_conj().resolve_neg().reshape(-1).contiguous()
    found: bytes = flat.view(sys.modules["torch"].uint8).numpy().tobytes()
    return found


def _key(key: Any, name: str | None) -> str | None:
    return key if isinstance(key, str) else name


def _number(value: Any) -> Any:
    """Encode a number, None or a bool; JSON readers turn ints from 2**53 on into floats."""
    if type(value) is int:
        return value if -_EXACT < value < _EXACT else {"int": hex(value)}
    return encode(value)


def encode(value: Any) -> Any:
    """Encode a position, or a user's own state, as JSON; `decode` restores it."""
    kind = type(value)
    if kind is int:
        return value if -_EXACT < value < _EXACT else {"int": _hex(value)}
    if kind is tuple:
        return [encode(v) for v in value]
    if kind is Own:
        return {"own": encode(value[0])}
    if kind is FrozenList:
        return {"list": [encode(v) for v in value]}
    if kind is FrozenDict:
        return {"dict": [[encode(k), encode(v)] for k, v in value]}
    if kind is float and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def written(value: Any) -> str:
    """Return a position as a JSON string, in the form of `encode`."""
    kind = type(value)
    if kind is int and -_EXACT < value < _EXACT:
        return str(value)
    if kind is tuple:
        texts = [str(v) if type(v) is int and -_EXACT < v < _EXACT else written(v) for v in value]
        return f"[{','.join(texts)}]"
    return dumps(encode(value))


def decode(value: Any) -> Any:
    """Restore a value from the result of `encode`."""
    kind = type(value)
    if kind is list:
        return tuple([decode(v) for v in value])
    if kind is not dict:
        return value
    ((tag, inner),) = value.items()
    if tag == "int":
        if len(inner) > _DIGITS:
            raise InvalidState(f"an int of {len(inner):,} digits is too long for a state")
        return int(inner, 16)
    if tag == "own":
        return Own((decode(inner),))
    if tag == "list":
        return FrozenList([decode(v) for v in inner])
    if tag == "dict":
        return FrozenDict([(decode(k), decode(v)) for k, v in inner])
    if tag == "float" and inner in ("nan", "inf", "-inf"):
        return math.nan if inner == "nan" else float(inner)
    raise InvalidState(f"malformed state: {brief(value)}")


def _hex(value: int) -> str:
    if value.bit_length() > 4 * _DIGITS - 16:  # minus the sign and 0x
        raise InvalidState(f"an int of {value.bit_length():,} bits is too long for a state")
    return hex(value)


# The budget of a state, in characters of its JSON. Arguments are digests where it is exceeded.
ROOM = 1024  # for a whole state of ten stages
INNER = 40  # for each stage of a joined pipeline, in addition
_ROOM_FOR_STAGES = 640  # for stages, without positions
ROOM_WITH_TEXTS = 704  # for these, and for descriptions of skipped items
_LONG = 120  # for an argument
_SHORT = 19  # for an argument if there is no room for all: the length of a digest


class _Known(dict[str, Any]):
    """The arguments of a stage in a state, by name."""

    def __missing__(self, name: str) -> Any:
        raise Unfit(f"the state does not say its {name}; start from lz.init(pipeline)")


class Entry(NamedTuple):
    """A stage as recorded in a state.

    - `name`: name of the combinator
    - `arguments`: the arguments that decide the order, as JSON
    - `owns`: whether the stage has its own position
    - `pipelines`: the entries of the pipelines that it joins
    """

    name: str
    arguments: str
    owns: bool
    pipelines: tuple[Entries, ...] = ()

    @property
    def known(self) -> dict[str, Any]:
        """The arguments by name."""
        return _Known(json.loads(self.arguments))

    def with_arguments(self, arguments: Mapping[str, Any]) -> Entry:
        """Return the same entry with other arguments."""
        return self._replace(arguments=dumps(arguments))


Entries: TypeAlias = tuple[Entry, ...]


def size(entries: Entries, free: int = 0) -> int:
    """Return the characters that stages take from the budget of a state, without their positions.

    Args:
        entries: The stages.
        free: Number of characters per stage that don't count.
    """
    return sum(
        max(0, len(each.name) + len(each.arguments) + 6 - free)
        + sum(size(inner, INNER) for inner in each.pipelines)
        for each in entries
    )


def has_room(entries: Entries) -> bool:
    """Return whether a state has room for stages as they are."""
    return size(entries) <= _ROOM_FOR_STAGES


def room_for_texts(entries: Entries) -> int:
    """Return the characters left in the budget for descriptions of skipped items."""
    return ROOM_WITH_TEXTS - size(entries)


def forms(value: Any) -> tuple[Any, Any]:
    """Return an argument as JSON, or its digest: if there is room for all, and if there is none."""
    text = dumps(value)
    mark = f"#{digest(text)}" if len(text) > _SHORT else ""
    return (mark if len(text) > _LONG else value), mark or value


def alike(old: Entries, new: Entries) -> bool:
    """Return whether two descriptions are of the same pipeline, whichever has more detail."""
    return len(old) == len(new) and all(map(alike_stages, old, new))


def alike_stages(old: Entry, new: Entry) -> bool:
    """Return whether two entries are of the same stage."""
    return old == new or (
        (old.name, old.owns, len(old.pipelines)) == (new.name, new.owns, len(new.pipelines))
        and not changed(old, new)
        and all(map(alike, old.pipelines, new.pipelines))
    )


def changed(old: Entry, new: Entry) -> list[str]:
    """Return the names of the arguments that differ, or that one of them lacks."""
    before, after = old.known, new.known
    return [
        name
        for name in before | after
        if name not in before or name not in after or not _same(before[name], after[name])
    ]


def _same(old: Any, new: Any) -> bool:
    before, after = dumps(old), dumps(new)
    return before == after or dumps(forms(old)[1]) == after or before == dumps(forms(new)[1])
