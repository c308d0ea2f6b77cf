"""Resumes of loaders and streams that have `state_dict` and `load_state_dict`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tests.helpers import IS_DEEP


def over_epochs(batches: Any) -> Iterator[Any]:
    while True:
        yield from batches


def resumes_twice(
    make: Callable[[], Any], following: Callable[[Any], Iterator[Any]] = over_epochs
) -> None:
    """From any of 1,000 positions the rest is the rest, and so it is after a second resume."""
    loader = make()
    batches, expected, states = following(loader), [], []
    for _ in range(1000):
        states.append(json.dumps(loader.state_dict()))
        expected.append(next(batches))
    assert len(set(states)) == 1000
    assert max(map(len, states)) <= 2048
    expected += islice(batches, 8)
    for at in range(0, 1000, 1 if IS_DEEP else 7):
        once, twice = make(), make()
        once.load_state_dict(json.loads(states[at]))
        assert list(islice(following(once), 3)) == expected[at : at + 3]
        twice.load_state_dict(once.state_dict())
        assert list(islice(following(twice), 5)) == expected[at + 3 : at + 8]
