"""Reducers for pickle protocol 5 that pass the data of arrays and tensors as buffers."""

from __future__ import annotations

import copyreg
import pickle
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def reducers() -> dict[type, Callable[[Any], Any]]:
    """Return the reducers of arrays and tensors, and those registered by users."""
    table = copyreg.dispatch_table | _ARRAYS
    if tensor := getattr(sys.modules.get("torch"), "Tensor", None):
        table[tensor] = _reduce_tensor
    return table


def _reduce_array(array: NDArray[Any]) -> Any:
    """Reduce an array as NumPy does, but shorter, and without copying numbers into the pickle."""
    if array.dtype.kind in "mM":  # arrays of times have no buffer interface
        return np.ndarray.view, (array.view(np.int64), array.dtype)
    if array.dtype.hasobject:
        return array.__reduce_ex__(5)
    if not array.flags.forc:
        array = np.ascontiguousarray(array)
    if array.dtype.isbuiltin != 1:
        return array.__reduce_ex__(5)
    order = "C" if array.flags.c_contiguous else "F"
    buffer = pickle.PickleBuffer(array)  # type: ignore[arg-type]  # a buffer for mypy from 3.12 on
    return np.ndarray, (array.shape, array.dtype.char, buffer, 0, None, order)


def _reduce_memmap(array: np.memmap[Any, Any]) -> Any:
    return np.ndarray.view, (array.view(np.ndarray), np.memmap)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a dense CPU tensor to a buffer, and other tensors in torch's own way."""
    torch = import_module("torch")
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("a tensor that is part of a graph can't be sent: detach() it first")
    cpu = tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not cpu or tensor.is_quantized or tensor.__dict__:
        return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]  # torch's
    dense = tensor.detach() if tensor.requires_grad else tensor
    if dense.is_conj() or dense.is_neg():
        dense = dense.resolve_conj().resolve_neg()
    strides = None
    if not dense.is_contiguous():
        dense = dense.clone()  # keeps the order of dimensions in memory
        strides = dense.stride()
        dense = dense.as_strided((dense.numel(),), (1,))
    buffer = pickle.PickleBuffer(dense.reshape(-1).view(torch.uint8).numpy().data)
    return _tensor, (buffer, tensor.dtype, tuple(tensor.shape), strides, tensor.requires_grad)


def _tensor(
    buffer: Any,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    requires_grad: bool,
) -> Any:
    torch = import_module("torch")
    flat = torch.frombuffer(buffer, dtype=dtype) if len(buffer) else torch.empty(0, dtype=dtype)
    tensor = flat.as_strided(shape, strides) if strides else flat.reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor


_ARRAYS: dict[type, Callable[[Any], Any]] = {np.ndarray: _reduce_array, np.memmap: _reduce_memmap}
