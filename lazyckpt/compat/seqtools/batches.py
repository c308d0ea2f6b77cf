"""What iterating over a loader gives, and a loader's state, taken apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from weakref import ref

from lazyckpt.compat.pinning import has_device, pinned
from lazyckpt.compat.seqtools.sequence import forgiving
from lazyckpt.core.checks import brief
from lazyckpt.core.content import decode
from lazyckpt.core.machine import fitting
from lazyckpt.core.user_state import thaw
from lazyckpt.errors import InvalidState
from lazyckpt.pipeline import Pipeline
from lazyckpt.run import Run
from lazyckpt.state.state import State, as_state


class Batches(Iterator[Any]):
    """One epoch of a loader, or the rest of one."""

    def __init__(self, loader: Any, run: Run[Any], pipeline: Pipeline[Any]) -> None:
        self.known = ref(self)
        self._loader, self.run = loader, run
        self._pins = loader.pin_memory and has_device()
        self._items = forgiving(run, pipeline)

    def __next__(self) -> Any:
        try:
            batch = next(self._items)
        except StopIteration:
            self._leave(is_over=True)
            raise
        return pinned(batch) if self._pins else batch

    def __len__(self) -> int:
        return len(self._loader)

    def __del__(self) -> None:
        with suppress(Exception):  # a loop is left
            self._leave()

    def _leave(self, is_over: bool = False) -> None:
        """End workers, and have the loader remember the place."""
        loader = self._loader
        if loader._batches is self.known:
            try:
                loader._state = self.run.state
                if is_over:
                    loader._state = loader._following = loader._after(loader._state)
            except InvalidState as error:
                loader._state = error
            loader._batches = lambda: None
        if self.run is not loader._run:
            self.run.close()


def parted(state: Any) -> tuple[list[int], tuple[Any] | None, State]:
    """A loader's state: its seed, its sampler's, its data set's, the pipeline's; that will do."""
    if isinstance(state, (str, bytes)):
        with suppress(ValueError, RecursionError):
            state = json.loads(state)
    if not isinstance(state, Mapping) or "seed" not in state:
        return [], None, as_state(state)
    rest = dict(state)
    try:
        seeds = [int(each, 16) for each in [rest.pop("seed"), *rest.pop("sampler_seeds", [])]]
    except (TypeError, ValueError):
        raise InvalidState(f"a state's seeds must be hexadecimal, got {brief(state)}") from None
    own = rest.pop("dataset", None)
    with fitting(own):
        of_dataset = None if own is None else (thaw(decode(own)),)
    return seeds, of_dataset, as_state(rest)
