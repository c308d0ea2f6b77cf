"""The cost of a state: its bytes, the time to take it, the time to resume from it."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

from contestant import Figures, Way
from harness import spent

AFTER = 20  # batches that must be the same
TIMES = 5  # that a state is taken

Started: TypeAlias = tuple[Any, Iterator[Any]]  # the object that has a state, and its batches


def dumped(state: Any) -> bytes:
    """As JSON, if that restores the value unchanged."""
    try:
        text = json.dumps(state)
    except TypeError:
        return pickle.dumps(state)
    return text.encode() if json.loads(text) == state else pickle.dumps(state)


def loaded(text: bytes) -> Any:
    return pickle.loads(text) if text[:1] == b"\x80" else json.loads(text)


def resumes(
    batches: int, start: Callable[[bytes | None], Started], save: Callable[[Any], bytes]
) -> Way:
    """Figures of states at 10, 50 and 90 % of the batches, which are built once.

    `start` begins, or resumes from the result of `save`. It must do so a second time too: from a
    state of a run that was itself resumed.
    """
    places = {share: max(1, batches * share // 100) for share in (10, 50, 90)}
    found: dict[str, Any] = {}

    def prepare() -> None:
        run, stream = start(None)
        saved, took, after, given = {}, [], {}, 0
        for share, place in places.items():
            for _ in itertools.islice(stream, place - given):
                pass
            for _ in range(TIMES):
                begun = perf_counter()
                saved[share] = save(run)
                took.append(perf_counter() - begun)
            after[share] = given_by(stream, 2 * AFTER)
            given = place + 2 * AFTER
        found.update(saved=saved, took=took, after=after)
        found["inexact again"] = sum(not twice(saved[share], after[share]) for share in places)

    def twice(text: bytes, after: list[str]) -> bool:
        run, stream = start(text)
        given_by(stream, AFTER)
        with suppress(Exception):  # a library that can't resume at all isn't exact either
            return given_by(start(save(run))[1], AFTER) == after[AFTER:]
        return False

    def figures() -> Figures:
        if not found:
            prepare()
        measured, inexact = {}, 0
        for share, text in found["saved"].items():
            begun = perf_counter()
            _, stream = start(text)
            first = next(stream, None)
            measured[f"{share}%"] = perf_counter() - begun
            rest = [repr(first), *given_by(stream, AFTER - 1)]
            inexact += rest != found["after"][share][:AFTER]
        again = found["inexact again"]
        largest = max(map(len, found["saved"].values()))
        taken = {"bytes": largest, "take": median(found["took"])}
        return taken | measured | {"inexact": inexact, "inexact again": again}

    return figures


def resumed(
    batches: int, make: Callable[[], Any], take: str = "state_dict", load: str = "load_state_dict"
) -> Way:
    """The same for an object that `make` builds again, with its own methods for states."""

    def start(text: bytes | None) -> Started:
        run = make()
        if text is not None:
            getattr(run, load)(loaded(text))
        return run, iter(run)

    return resumes(batches, start, lambda run: dumped(getattr(run, take)()))


def given_by(stream: Iterator[Any], count: int) -> list[str]:
    return [repr(batch) for batch in itertools.islice(stream, count)]


def mixed(n: int, make: Callable[[], Any], save: Callable[[Any], bytes]) -> Way:
    """Seconds of n items, including the setup; and the bytes of a state after them."""

    def go() -> Figures:
        begun, run = perf_counter(), make()
        spent(itertools.islice(run, n))
        return {"seconds": perf_counter() - begun, "bytes": len(save(run))}

    return go
