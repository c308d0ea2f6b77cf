"""Arrays as sources hand them out: not to be written to, or the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyckpt.core.prng import Indices

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """A view of an array that refuses to be written to, as its rows do."""
    view = values.view()
    view.flags.writeable = False
    return view


def picked(values: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """Rows of an array as a new array."""
    if isinstance(indices, range):
        return values[indices.start : indices.stop : indices.step].copy()
    found: NDArray[Any] = values.take(indices, axis=0)
    return found
