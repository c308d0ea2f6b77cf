"""Outcomes of tasks as messages between ranks."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from lazyckpt.executors.ipc.serialization import (
    opened,
    picklable_failure,
    send_outcome,
    serialize,
    this_process,
)
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.pools.pool import PendingTask
from lazyckpt.failures.notes import Failure

KEY_BYTES = 16
_COUNT = struct.Struct("=I")


class Loss(NamedTuple):
    """The death or hang of a worker at a task, in a form that all ranks get.

    Attributes:
        failure: The error to raise.
        made: Number of items that the worker had computed, if known.
        called: The watched call in progress, if there was one.
        lost: A short description of the worker's end.
    """

    failure: Failure
    made: int | None
    called: int | None
    lost: Exception | None

    def raise_at(self, pending: PendingTask) -> None:
        """Raise the error, with its details, at the task of this rank."""
        pending.made, pending.called, pending.lost = self.made, self.called, self.lost
        raise self.failure.error


def packed(key: bytes, found: Outcome | Loss) -> bytes:
    """Return a task's outcome as a message: a copy, which later changes don't affect."""
    if isinstance(found, Loss):
        found = found._replace(failure=picklable_failure(found.failure, this_process()))
        frame, buffers = serialize(found)
    else:
        frame, buffers = send_outcome(found, this_process(), serialize)
    parts = [memoryview(frame), *(each.data for each in buffers)]
    sizes = struct.pack(f"={len(parts)}Q", *map(len, parts))
    return b"".join([key, _COUNT.pack(len(parts)), sizes, *parts])


def key_of(message: memoryview) -> bytes:
    """Return the key of the task whose outcome is in a message."""
    return bytes(message[:KEY_BYTES])


class Packed(NamedTuple):
    """An outcome from a message. Opening it may raise errors of unpickling."""

    message: memoryview

    def open(self) -> Any:
        """Return the outcome, with its arrays in private, writable memory."""
        place = KEY_BYTES + _COUNT.size
        (count,) = _COUNT.unpack_from(self.message, KEY_BYTES)
        sizes = struct.unpack_from(f"={count}Q", self.message, place)
        place += 8 * count
        parts = []
        for size in sizes:
            parts.append(self.message[place : place + size])
            place += size
        frame, *buffers = parts
        return pickle.loads(frame, buffers=[_writable(each) for each in buffers])


def _writable(buffer: memoryview) -> Any:
    return bytearray(buffer) if buffer.readonly else buffer


def outcome_of(message: memoryview) -> Outcome | Loss:
    """Return the outcome in a message, or a failure if it can't be unpickled here."""
    found = opened(Packed(message))
    assert isinstance(found, (Outcome, Loss))
    return found


def packed_items(items: Iterable[Any]) -> list[bytes]:
    """Return each item as a message: one that can't travel is an error of its reader alone."""
    return [packed(bytes(KEY_BYTES), Outcome([item])) for item in items]


def packed_apart(key: bytes, outcome: Outcome) -> bytes:
    """Return an outcome as a message, with each item as one."""
    return packed(key, outcome._replace(items=packed_items(outcome.items)))


def opened_apart(message: memoryview) -> Outcome:
    """Return the outcome in a message of `packed_apart`, up to the first item that can't travel."""
    outcome, items = outcome_of(message), list[Any]()
    assert isinstance(outcome, Outcome)
    for each in outcome.items:
        found = outcome_of(memoryview(each))
        assert isinstance(found, Outcome)
        if found.failure is not None:
            outcome = outcome._replace(failure=found.failure, end=None)
            break
        items += found.items
    return outcome._replace(items=items, is_transfer_error=False)  # it can't be tried again
