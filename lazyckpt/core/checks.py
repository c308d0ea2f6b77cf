"""Argument checks: each returns the normalised value, or raises `Unfit` with its expectation.

Also properties of users' functions and data: signatures, lengths, the origin of an error.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from numbers import Real
from typing import Any, NoReturn, TypeAlias

import numpy as np

from lazyckpt.core.secrets import MASK, is_secret, masked
from lazyckpt.errors import ArgumentError

if sys.version_info >= (3, 14):
    from annotationlib import Format

Check = Callable[[Any], Any]
Array: TypeAlias = np.ndarray[Any, Any]

_EXACT = 1 << 53  # up to here a float represents every int
_NUMBERS = (int, float, np.bool_, np.integer, np.floating)
_ARRAYS = (np.ndarray, np.generic)

UNMASK = "pass .filled(value)"  # the remedy for a masked array


class Shown:
    """Base class of values whose repr is the code that built them."""


class Unfit(Exception):
    """Raised by a check; carries the expectation."""


def checked(stage: str, name: str, value: Any, check: Check) -> Any:
    """Return the value as checked, or raise an `ArgumentError` with stage, name and value."""
    try:
        return check(value)
    except Unfit as unfit:
        raise ArgumentError(
            f"{stage}: {name} must be {unfit}, got {name}={brief(value, name)} "
            f"({type(value).__name__})"
        ) from None


def brief(value: Any, name: str = "") -> str:
    """Return a repr of at most 60 characters, without secrets; `name` may mark the value as one."""
    if is_secret(name, value):
        return repr(MASK)
    try:
        text = masked(repr(value))
    except Exception:  # a huge int, or a user's own repr
        return f"<{type(value).__name__}>"
    if "\n" in text:  # a table, or an array
        text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def cut(text: str, *, in_data: bool = False) -> str:
    """Clean a string out of a state or an item for display: no control codes, no secrets."""
    line = masked(text[:1000], in_data=in_data)
    return "".join(c if c.isprintable() else "?" for c in line)


def plural(count: int, what: str) -> str:
    """Return a count with its noun, in the singular or plural."""
    ending = "es" if what.endswith("s") else "s"
    return f"{count:,} {what}{ending * (count != 1)}"


def missing_name(module: str, name: str, known: Sequence[str]) -> AttributeError:
    """Return the error for an unknown name of a module; it suggests the most similar one."""
    alike = import_module("difflib").get_close_matches(name, known, n=1)
    remedy = f"; did you mean {alike[0]!r}?" if alike else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{remedy}")


def _unfit(expected: str) -> NoReturn:
    raise Unfit(expected)


def at_least(least: int, most: int | None = None) -> Check:
    """Check an int from `least` to `most`; NumPy's ints are included, bools excluded."""

    def check(value: Any) -> int:
        if not is_integer(value) or value < least:
            _unfit(f"an int >= {least}")
        if most is not None and value > most:
            _unfit(f"an int <= {most}")
        return operator.index(value)

    return check


def is_integer(value: Any) -> bool:
    if type(value) is int:
        return True
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        return False
    try:
        operator.index(value)
    except TypeError as error:
        if not is_raised_here(error):
            raise
        return False
    return getattr(value, "shape", ()) == ()


natural = at_least(0)
positive = at_least(1, sys.maxsize)


def integer(value: Any) -> int:
    """Check an int of any sign; NumPy's ints are included, bools excluded."""
    if not is_integer(value):
        _unfit("an int")
    return operator.index(value)


def finite(what: str, fits: Callable[[Any], bool]) -> Check:
    """Check a finite number that fits, and return a float; `what` describes the ones that fit."""

    def check(value: Any) -> float:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not fits(value) or not value <= sys.float_info.max:
            _unfit(f"a number {what}")
        return float(value)

    return check


def short(value: Any) -> str:
    """Check a string of 1 to 40 characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= 40:
        _unfit("a str of 1 to 40 characters")
    return value


def weighing(value: Any) -> tuple[Any, ...]:
    """Return weights as a tuple, with ints for whole numbers."""
    return tuple(map(whole, weights_as_given(value)))


def as_column(value: Any) -> Any:
    """Return a list, tuple, range or array as it is; convert a series, tensor or other column."""
    if isinstance(value, np.ma.MaskedArray):
        _unfit(f"without a mask; {UNMASK}")
    if isinstance(value, (list, tuple, range, np.ndarray)):
        return value
    if hasattr(value, "__array__"):
        return np.asarray(value)
    is_sequence = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return [*value] if is_sequence else value


def unchanged(stage: str, found: Array, parts: Sequence[Any]) -> Array:
    """Return an array, or raise an error if its values are not those that it was made from.

    NumPy drops masks and the zeros at the end of a string. It converts numbers to strings if they
    are mixed with strings, and ints to floats if they are mixed with floats, or if only some are
    above `2**63`.

    Args:
        stage: Name for errors.
        found: The array.
        parts: The values that it was made from.
    """
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise TypeError(f"{stage}: an array is masked, and its mask would be lost; {UNMASK}")
    if found.dtype.kind in "US":
        _check_strings(stage, found.dtype, [part for part in parts if not _is_of(found, part)])
    elif found.dtype.kind in "fc":
        _check_floats(stage, found, [part for part in parts if not _is_of_floats(part)])
    return found


def _check_strings(stage: str, dtype: np.dtype[Any], parts: Sequence[Any]) -> None:
    for value in _values(parts):
        if (kept := np.array(value, dtype).item()) != value:
            raise TypeError(
                f"{stage}: {brief(value)} ({type(value).__name__}) would be {kept!r} in an array "
                "of strings; use one type for all, without \\0 at the end of a string"
            )


def _check_floats(stage: str, found: Array, parts: Sequence[Any]) -> None:
    if not parts or not (np.abs(found) >= np.float64(_EXACT)).any():  # beyond a float16
        return
    for value in _values(parts):
        if isinstance(value, (int, np.integer)) and abs(int(value)) >= _EXACT:
            raise ValueError(
                f"{stage}: {value} can't be in one array with the others, which would be "
                f"{found.dtype}, so it would be rounded; use one type for all"
            )


def _values(parts: Sequence[Any]) -> Iterator[Any]:
    for part in parts:
        yield from np.array(part, object).ravel().tolist()


def _is_of(found: Array, value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == found.dtype.kind


def _is_of_floats(value: Any) -> bool:
    return isinstance(value, _ARRAYS) and value.dtype.kind in "fc"


def weights_as_given(value: Any) -> Any:
    """Check a sequence or one-dimensional array of finite numbers >= 0, not all of them 0."""
    value = as_column(value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "biuf":
        bad = np.flatnonzero(~((value >= 0) & (value < math.inf))).tolist()
    else:
        found = value.tolist() if hasattr(value, "tolist") else value
        is_indexed = hasattr(found, "__len__") and hasattr(found, "__getitem__")
        if not is_indexed or isinstance(found, (str, bytes, Mapping)):
            _unfit("a sequence of at least one number")
        value = tuple(found)
        bad = [number for number, weight in enumerate(value) if not _is_weight(weight)]
    if not len(value):
        _unfit("a sequence of at least one number")
    if bad:
        _unfit(f"finite numbers >= 0, but weight {bad[0]} is {brief(value[bad[0]])}")
    if not any(value):
        _unfit("numbers, at least one of them above 0")
    return value


def whole(weight: Any) -> Any:
    """Return a whole weight as an int, so that 3 and 3.0 are the same argument."""
    number = weight.item() if isinstance(weight, np.generic) else weight
    return int(number) if number == number // 1 < 1 << 53 else number


def _is_weight(value: Any) -> bool:
    try:
        return isinstance(value, _NUMBERS) and 0 <= float(value) < math.inf
    except OverflowError:
        return False


def index_sequence(value: Any) -> Any:
    """Check a range, list, tuple or one-dimensional array of ints; convert other columns."""
    value = as_column(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O" and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, range):
        if value[sys.maxsize :]:
            _unfit(f"a range of at most {sys.maxsize} ints")
        return value
    if isinstance(value, (list, tuple)):
        for number, index in enumerate(value):
            if not is_integer(index):
                _unfit(f"ints, but index {number} is {brief(index)}")
    elif not (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"):
        _unfit("a range, list, tuple or one-dimensional array of ints")
    return value


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        _unfit("True or False")
    return value


def one_of(*texts: str) -> Check:
    """Return a check for one of several strings."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in texts:
            *others, last = map(repr, texts)
            _unfit(f"{', '.join(others)} or {last}" if others else last)
        return str(value)

    return check


def function(value: Any) -> Any:
    if isinstance(value, Shown):
        _unfit("a function; use | to compose stages")
    if not callable(value):
        _unfit("callable")
    return value


def optional(check: Check) -> Check:
    """Return a check for None, or for the values that `check` accepts."""

    def either(value: Any) -> Any:
        if value is None:
            return None
        try:
            return check(value)
        except Unfit as unfit:
            _unfit(f"{unfit} or None")

    return either


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function; from Python 3.14 on without evaluating annotations."""
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def is_starred(parameter: inspect.Parameter) -> bool:
    """Return whether a function takes any number of positional arguments, as with `*args`."""
    return parameter.kind is parameter.VAR_POSITIONAL


_SAYS_SO = re.compile("(?<!'NoneType') has no len")  # None is a mistake, not data


def length_of(data: Any) -> int | None:
    """Return the length of data; None if they, or the data they wrap, declare that they have none.

    Any other error of `__len__` is passed on.
    """
    if not hasattr(type(data), "__len__"):
        return None
    try:
        return len(data)
    except NotImplementedError:
        return None
    except TypeError as error:
        if _SAYS_SO.search(str(error)):
            return None
        raise


def is_raised_here(error: BaseException) -> bool:
    """Return whether the function that caught an error raised it, not Python code it called.

    Errors raised by C code count as raised by its caller.
    """
    trace = error.__traceback__  # not stored in its own frame, to avoid a cycle
    return trace is not None and trace.tb_next is None
