"""TensorBoard: a text with the tag `lazyckpt`, in the event file.

By default a reader keeps 10 texts per tag, chosen at random, and so does TensorBoard's page:
`tensorboard --samples_per_plugin text=0` shows all. A writer buffers; `log_state` flushes it. Its
`purge_step` removes scalars, not texts.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from lazyckpt.integrations.trackers.kinds import NAME, Texts, package, unfit

_READER = "tensorboard.backend.event_processing.event_accumulator"
_TAG = f"{NAME}/text_summary"  # the tag that torch derives from the name


def log(where: Any, text: str, step: int) -> None:
    writer = _writer(where)
    writer.add_text(NAME, text, step)
    writer.flush()


def texts(where: Any) -> Texts:
    folder = where if isinstance(where, Path) else _flushed(where).log_dir
    events = package(_READER, "tensorboard").EventAccumulator(str(folder), {"tensors": 0}).Reload()
    if _TAG not in events.Tags()["tensors"]:
        return {}
    found = {event.step: event.tensor_proto.string_val[0] for event in events.Tensors(_TAG)}
    return {step: partial(str, text, "utf-8") for step, text in found.items()}


def _flushed(where: Any) -> Any:
    writer = _writer(where)
    writer.flush()
    return writer


def _writer(where: Any) -> Any:
    if isinstance(where, ModuleType) or not hasattr(where, "add_text"):
        unfit(where)
    return where
