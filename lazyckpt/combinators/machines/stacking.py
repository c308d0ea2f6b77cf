"""`stack`, the standard collate of `batch`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from lazyckpt.core.checks import brief, unchanged
from lazyckpt.core.registry import copying

_SHAPE, _DTYPE = attrgetter("shape"), attrgetter("dtype")
_PLAIN = "biufcmM"  # kinds of dtypes whose items `stack` makes an array of the same dtype
_PYTHONS = (bool, int, float, complex)
_NUMBERS = (*_PYTHONS, np.generic)
_REMEDIES = {
    "keys": "use the same keys for all",
    "length": "pad or cut them to one length",
    "shape": "pad or cut them to one shape",
}
_SMALL = 1 << 15  # bytes per item; from this size on `np.stack` is as fast


@copying
def stack(items: Sequence[Any]) -> Any:
    """Stack a batch of similar items into arrays, field by field: the standard `collate`.

    - arrays of one shape: an array with a new first axis
    - numbers, bools and NumPy scalars: a one-dimensional array; Python's take the dtype of
      NumPy's, if that holds them
    - strings and bytes: a list
    - tuples, named tuples and lists: the same type, with every field stacked
    - mappings: a dict, with every field stacked
    - torch tensors: `torch.stack`

    Args:
        items: The items, at least one.

    Returns:
        The batch.

    Raises:
        TypeError: If the items are None or of a type not listed above, or numbers and strings would
            be in one array, or an array is masked, or tuples or lists differ in type.
        ValueError: If shapes, lengths or keys differ. Errors name the field and the first item that
            differs.

    >>> stack([{"x": (1, "a")}, {"x": (2, "b")}])
    {'x': (array([1, 2]), ['a', 'b'])}
    """
    return _stacked(items, "")


def restacked(batch: Any, field: str = "") -> Any:
    """Return a batch as `stack` makes it of its items, without making an array of numbers again.

    Args:
        batch: The batch.
        field: Path of it in a larger batch, for errors.
    """
    if isinstance(batch, Mapping):
        return {key: restacked(each, _inside(field, key)) for key, each in batch.items()}
    if isinstance(batch, tuple):
        fields = [restacked(each, _inside(field, place)) for place, each in enumerate(batch)]
        return batch._make(fields) if hasattr(batch, "_make") else tuple(fields)
    is_plain = type(batch) is np.ndarray and batch.dtype.isnative and batch.dtype.kind in _PLAIN
    if is_plain or not isinstance(batch, (list, np.ndarray)):
        return batch
    return _stacked([*batch], field)


def _stacked(items: Sequence[Any], field: str) -> Any:
    name = f"stack: field {field!r}" if field else "stack"
    if not len(items):
        raise ValueError(f"{name}: a batch of no items has no shape")
    first = items[0]
    if isinstance(first, Mapping):
        _alike(name, items, Mapping, "keys", lambda item: sorted(item, key=repr))
        return {key: _stacked([each[key] for each in items], _inside(field, key)) for key in first}
    if isinstance(first, (tuple, list)):
        _alike(name, items, (), "length", len)
        columns = enumerate(zip(*items, strict=True))
        fields = [_stacked(each, _inside(field, place)) for place, each in columns]
        return first._make(fields) if hasattr(first, "_make") else type(first)(fields)
    if isinstance(first, (str, bytes)):
        _alike(name, items, str if isinstance(first, str) else bytes)
        return list(items)
    if isinstance(first, np.ndarray):
        types = {*map(type, items)}
        if len(types) > 1 or len({*map(_SHAPE, items)}) > 1:
            _alike(name, items, np.ndarray, "shape", _SHAPE)
        is_plain = types == {np.ndarray} and first.dtype.kind in "biufc"
        if is_plain and first.nbytes < _SMALL and len({*map(_DTYPE, items)}) == 1:
            return np.array(items)  # takes a third of the time
        return unchanged(name, np.stack(items), items)
    if isinstance(first, _NUMBERS):
        _alike(name, items, _NUMBERS)
        found = np.array(items)
        if found.dtype != object:
            dtype = _dtype_of_scalars(items, found.dtype)
            return unchanged(name, found.astype(dtype, copy=False), items)
        first = _without_array(name, items)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        _alike(name, items, torch.Tensor, "shape", lambda item: tuple(item.shape))
        return torch.stack(list(items))
    raise TypeError(
        f"{name}: no array can be made of {brief(first)} ({type(first).__name__}); "
        "convert it or leave it out in a map before batch"
    )


def _inside(field: str, key: Any) -> str:
    return f"{field}.{key}" if field else f"{key}"


def _dtype_of_scalars(items: Sequence[Any], standard: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that numbers have if Python's take that of NumPy's among them, as in NEP 50.

    Return the standard one if there are no such, or if it would change a number of Python.
    """
    kinds = {*map(type, items)}
    plain, scalars = kinds & {*_PYTHONS}, kinds - {*_PYTHONS}
    if not plain or not scalars or not all(issubclass(kind, np.number) for kind in scalars):
        return standard
    dtype = np.result_type(*map(np.dtype, scalars), *[kind(0) for kind in plain])
    fits = all(_fits(item, dtype) for item in items if type(item) in plain)
    return dtype if fits else standard


def _fits(number: complex, dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds an int exactly, and a finite float as a finite one."""
    with np.errstate(over="ignore"):
        found = np.array(number).astype(dtype)
    if isinstance(number, int):
        return bool(np.isfinite(found)) and int(found.real) == number
    return bool(np.isfinite(found) == np.isfinite(number))


def _without_array(name: str, items: Sequence[Any]) -> Any:
    """Return the number of which no array can be made, such as one beyond 64 bits."""
    for item in items:
        if np.array(item).dtype == object:
            return item
    kinds = [*map(type, items)]
    number = next(n for n, kind in enumerate(kinds) if kind is not kinds[0])
    raise _odd(name, number, items)


def _alike(
    name: str,
    items: Sequence[Any],
    base: Any,
    what: str = "",
    measure: Callable[[Any], Any] = lambda item: None,
) -> None:
    """Raise an error unless all items have the first one's type or `base`, and its measure."""
    kind, wanted = type(items[0]), measure(items[0])
    for number, item in enumerate(items):
        if type(item) is not kind and not isinstance(item, base):
            raise _odd(name, number, items)
        if (found := measure(item)) != wanted:
            raise ValueError(
                f"{name}: item {number} has {what} {brief(found)}, item 0 has {brief(wanted)}; "
                f"{_REMEDIES[what]} in a map before batch"
            )


def _odd(name: str, number: int, items: Sequence[Any]) -> TypeError:
    item, first = items[number], items[0]
    return TypeError(
        f"{name}: item {number} is {brief(item)} ({type(item).__name__}), "
        f"item 0 is {brief(first)} ({type(first).__name__}); "
        "convert them to one type in a map before batch"
    )
