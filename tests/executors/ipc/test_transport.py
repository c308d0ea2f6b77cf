"""Messages over real pipes: contents, the memory that they are in, and leftovers."""

from __future__ import annotations

import os
import socket
import threading
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyckpt.executors.ipc.pickler import LARGE
from lazyckpt.executors.ipc.transport import (
    LARGE_PICKLE,
    Receiver,
    Sender,
)

BIG = 4 * LARGE
Pair = namedtuple("Pair", "a b")


class Labelled(np.ndarray[Any, Any]):
    """A subclass with nothing of its own."""


@dataclass(frozen=True)
class Row:
    x: Any
    name: str


@contextmanager
def pair(slots: int = 4, shared: bool = True) -> Iterator[tuple[Sender, Receiver]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, receiver = Sender(theirs, slots=slots, shared=shared), Receiver(ours)
        try:
            yield sender, receiver
        finally:
            sender.close()
            receiver.close()


def exchange(messages: list[Any], slots: int = 4, shared: bool = True) -> list[Any]:
    """Send messages from a thread: a pipe is too narrow for some of them."""
    with pair(slots, shared) as (sender, receiver):
        thread = threading.Thread(target=lambda: [sender.send(m) for m in messages])
        thread.start()
        got = [receiver.receive().open() for _ in messages]
        thread.join()
        return got


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes() if not a.dtype.hasobject else a.tolist() == b.tolist()
    elif hasattr(a, "resolve_conj"):  # a tensor
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        assert a.detach().resolve_conj().equal(b.detach().resolve_conj())
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, Row):
        same((a.x, a.name), (b.x, b.name))
    else:
        assert a == b


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    x = np.arange(BIG, dtype=np.float64)
    readonly = x.copy()
    readonly.flags.writeable = False
    return {
        "plain": x,
        "small": np.arange(3),
        "fortran": np.asfortranarray(x.reshape(4, -1)),
        "transposed": x.reshape(4, 8, -1).transpose(2, 0, 1),
        "strided": x[::3],
        "backwards": x[::-1],
        "scalar": np.array(7.5),
        "empty": np.zeros((0, 3), np.int32),
        "structured": np.zeros(BIG, [("a", "i4"), ("b", "f8", 2)]),
        "object": np.array([1, "a", None, (2, 3)], dtype=object),
        "readonly": readonly,
        "times": np.arange(BIG).astype("M8[ms]").reshape(2, -1).T,
        "spans": np.arange(BIG).astype("m8[D]")[::2],
        "text": np.full(BIG, "abc", "U5"),
        "bytes": np.full(BIG, b"abc", "S5"),
        "swapped": x.astype(">f4"),
        "half": (x % 100).astype(np.float16),
        "complex": x * 1j,
        "bool": x > 3,
        "long double": x.astype(np.longdouble),
        "subclass": x.view(Labelled),
    }


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", arrays())
def test_arrays(name: str, shared: bool) -> None:
    array = arrays()[name]
    (got,) = exchange([array], shared=shared)
    same(got, array)
    if array.flags.forc:
        assert got.flags.writeable == array.flags.writeable
        assert got.flags.f_contiguous == array.flags.f_contiguous


def test_maps_of_files(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "rows", np.int32, "w+", shape=(100, BIG // 10))
    array[:] = np.arange(array.size).reshape(array.shape)
    for part in (array, array[10:20], array[:, ::2]):
        (got,) = exchange([part])
        same(got, part)


def test_the_data_of_arrays_is_not_pickled() -> None:
    has_data_beside_its_pickle(np.zeros((BIG, 3))[:, 1])


def has_data_beside_its_pickle(item: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = Sender(theirs, slots=2)
        sender.send(item)  # more than a pipe holds: in it, this would not end
        ours.setblocking(False)
        came = 0
        with suppress(BlockingIOError):
            while True:
                came += len(ours.recv(1 << 16))
        assert 0 < came < 500
        sender.close()


leaves = (
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.builds(
        lambda n, dtype: np.arange(n).astype(dtype),
        st.sampled_from([0, 1, 100, LARGE // 8 - 1, LARGE // 8, LARGE, LARGE + 1]),
        st.sampled_from(["i8", "f4", "M8[s]", "?"]),
    )
    | st.builds(bytes, st.sampled_from([LARGE, LARGE_PICKLE - 99, LARGE_PICKLE, 3 * LARGE_PICKLE]))
)


def nested(leaves: Any) -> Any:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.builds(Pair, inner, inner)
            | st.builds(Row, inner, st.text(max_size=3))
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    )


SIZES = [1, 1, 3, 2, 9, 40, 1]  # slots grow while messages are unread


@given(st.lists(nested(leaves), max_size=5), st.integers(1, 3), st.booleans())
@example([[np.full(LARGE * n, n, np.uint8), n] for n in SIZES], 3, True)
def test_any_message_arrives(messages: list[Any], slots: int, shared: bool) -> None:
    arrive(messages, slots, shared)


def arrive(messages: list[Any], slots: int, shared: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a receiver that is slow
        same(exchange(messages, slots, shared), messages)


def test_one_object_twice_is_one_object() -> None:
    x = np.zeros(BIG)
    ((a, b),) = exchange([(x, x)])
    assert a is b


def test_arrays_own_their_memory() -> None:
    own_their_memory(lambda size, value: [np.full(size, value)])


def own_their_memory(filled: Callable[[int, int], list[Any]]) -> None:
    with pair() as (sender, receiver):
        kept = []
        for i in range(100):
            sender.send(filled(BIG, i))
            kept.append(receiver.receive().open())
            for values in kept[-1]:
                values[0] = -1
    for i, item in enumerate(kept):
        for values in item:
            assert values[0] == -1
            assert (values[1:] == i).all()


def test_slots_out() -> None:
    with pair(slots=2) as (sender, receiver):
        items = [np.full(LARGE, i, np.uint8) for i in range(5)]
        for item in items:
            sender.send(item)
        assert (receiver.receive().open()[0], receiver.receive().open()[0]) == (0, 1)
        with pytest.warns(RuntimeWarning, match="all 2 slots of 16,384 bytes are taken"):
            assert receiver.receive().open()[0] == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # there is no second one
            for i in (3, 4):
                same(receiver.receive().open(), items[i])
        for i in range(10):  # and slots are free again
            sender.send(np.full(BIG, i))
            assert (receiver.receive().open() == i).all()


def test_a_warning_made_an_error_loses_no_message() -> None:
    with pair(slots=1) as (sender, receiver):
        for i in range(2):
            sender.send(np.full(LARGE, i, np.uint8))
        receiver.receive().open()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning):
                receiver.receive().open()
        assert receiver.receive().open()[0] == 1


def test_no_shared_memory_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair(slots=1 << 31) as (sender, receiver):
        sender.send(np.ones(1 << 17, np.uint8))  # more slots of this size than there are addresses
        with pytest.warns(
            RuntimeWarning, match=r"can't allocate .* slots of .*; large messages go through a pipe"
        ):
            assert receiver.receive().open().all()
        sender.send(np.ones(LARGE, np.uint8))
        assert receiver.receive().open().all()
    monkeypatch.delattr(os, "memfd_create", raising=False)
    same(exchange([np.arange(BIG)] * 3), [np.arange(BIG)] * 3)
