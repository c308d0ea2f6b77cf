"""What a state costs: its bytes, the time to take it, the time to go on from it."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

from contestant import Figures, Way

AFTER = 20  # batches that must be the same
TIMES = 5  # that a state is taken


def dumped(state: Any) -> bytes:
    """As JSON, where that gives it back as it was."""
    try:
        text = json.dumps(state)
    except TypeError:
        return pickle.dumps(state)
    return text.encode() if json.loads(text) == state else pickle.dumps(state)


def loaded(text: bytes) -> Any:
    return pickle.loads(text) if text[:1] == b"\x80" else json.loads(text)


def resumes(
    batches: int,
    start: Callable[[], tuple[Any, Iterator[Any]]],
    save: Callable[[Any], bytes],
    resume: Callable[[bytes], Iterator[Any]],
) -> Way:
    """Figures of states at 10, 50 and 90 % of the batches; these are made once."""
    places = {share: max(1, batches * share // 100) for share in (10, 50, 90)}
    found: dict[str, Any] = {}

    def prepare() -> None:
        run, stream = start()
        saved, took, after, given = {}, [], {}, 0
        for share, place in places.items():
            for _ in itertools.islice(stream, place - given):
                pass
            for _ in range(TIMES):
                begun = perf_counter()
                saved[share] = save(run)
                took.append(perf_counter() - begun)
            after[share] = [repr(batch) for batch in itertools.islice(stream, AFTER)]
            given = place + AFTER
        found.update(saved=saved, took=took, after=after)

    def figures() -> Figures:
        if not found:
            prepare()
        measured, inexact = {}, 0
        for share, text in found["saved"].items():
            begun = perf_counter()
            stream = resume(text)
            first = list(itertools.islice(stream, 1))
            measured[f"{share}%"] = perf_counter() - begun
            rest = itertools.chain(first, itertools.islice(stream, AFTER - 1))
            inexact += [repr(batch) for batch in rest] != found["after"][share]
        largest = max(map(len, found["saved"].values()))
        return {"bytes": largest, "take": median(found["took"])} | measured | {"inexact": inexact}

    return figures
