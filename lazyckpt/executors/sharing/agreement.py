"""What ranks have to have in common to share work: stages, settings, data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lazyckpt.core.call import Chain, is_pipelines
from lazyckpt.core.content import content, digest, dumps

_SAMPLES = 256  # items of data in memory that are compared; of others, which may be slow
_FEW = 4


def told_of(chain: Chain, chunk_size: int) -> dict[str, Any]:
    """What has to be equal on all ranks of a pipeline, by names that errors show."""
    return {"chunk_size": chunk_size, **dict(_stages(chain, ""))}


def _stages(chain: Chain, prefix: str) -> Iterator[tuple[str, str]]:
    """Each stage with its settings and its data, those of joined pipelines before it."""
    for number, (call, entry) in enumerate(zip(chain.calls, chain.entries, strict=True)):
        for place, each in enumerate(call.chains):
            yield from _stages(each, f"{prefix}{call.combinator.name}.{place} ")
        name = f"{prefix}{number} {call.combinator.name}"
        yield name, entry.arguments
        for argument, value in call.arguments.items():
            is_data = call.combinator.is_source and not is_pipelines(value)
            if is_data and (found := _sampled(value)):
                yield f"{name} {argument}", found


def _sampled(data: Any) -> str:
    """A digest of some of the items of data that can be indexed, spread over all of them."""
    if isinstance(data, (str, bytes)) or not (
        hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        return ""
    is_at_hand = isinstance(data, (list, tuple, range, np.ndarray))
    count = min(len(data), _SAMPLES if is_at_hand else _FEW)
    places = np.linspace(0, len(data) - 1, count).astype(int).tolist() if count else []
    return digest(dumps([len(data), [_told(data, place) for place in places]]))


def _told(data: Sequence[Any], place: int) -> Any:
    try:
        return content(data[place], is_strict=False)
    except Exception as error:
        return type(error).__name__
