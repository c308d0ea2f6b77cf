"""Arrays as sources yield them: read-only views, or new arrays that belong to the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyckpt.core.prng import Indices

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return a view of an array that, like its rows, can't be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


def picked(values: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """Return rows of an array as a new array."""
    if isinstance(indices, range):
        return values[indices.start : indices.stop : indices.step].copy()
    found: NDArray[Any] = values.take(indices, axis=0)
    return found
