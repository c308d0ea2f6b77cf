"""`StreamWrapper` if producers fail, streams are empty, or batches are `None`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.compat.emloop import StreamWrapper
from tests.compat.emloop.cases import END, Source, asked


def failing(source: Source, at: tuple[int, int], error: Exception) -> Callable[[], Iterator[Any]]:
    """The source's stream, which fails once at a batch."""
    left = [error]

    def stream() -> Iterator[Any]:
        for batch in source():
            if batch == at and left:
                raise left.pop()
            yield batch

    return stream


def test_el10_a_producer_that_fails_is_a_child_process_error_with_its_cause() -> None:
    error = KeyError("broken")
    with pytest.raises(KeyError, match="broken"):
        next(StreamWrapper(failing(Source(2), (0, 0), error)))
    stream = StreamWrapper(failing(Source(2), (0, 0), error), 2, name="train")
    with stream, pytest.raises(ChildProcessError, match=r"'train'.*broken") as caught:
        next(stream)
    assert caught.value.__cause__ is error


def test_el10_the_function_itself_may_fail() -> None:
    def fails() -> Any:
        raise OSError("no such file")

    with StreamWrapper(fails, 2) as stream, pytest.raises(ChildProcessError) as caught:
        next(stream)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(OSError, match="no such file"):
        next(StreamWrapper(fails))
    with pytest.raises(TypeError, match="not iterable"):
        next(StreamWrapper(lambda: None))  # type: ignore[arg-type,return-value]


def test_el11_one_that_fails_ahead_loses_no_batch_and_ends_no_epoch() -> None:
    source = Source(6)
    stream = StreamWrapper(failing(source, (0, 4), KeyError("ahead")), buffer_size=8)
    with stream:
        assert next(stream) == (0, 0)
        with stream.allow_buffering:
            source.wait(5)
        assert asked(stream, 3) == [(0, 1), (0, 2), (0, 3)]
        with pytest.raises(ChildProcessError, match="ahead"):
            next(stream)
        assert asked(stream, 3) == [(0, 4), (0, 5), END]


@pytest.mark.parametrize("buffer_size", [0, 2])
def test_el12_none_is_a_batch_and_so_is_all_else(buffer_size: int) -> None:
    batches = [None, np.arange(3), END, StopIteration(), (), None]
    for stream_fn in (lambda: batches, lambda: iter(batches)):
        with StreamWrapper(stream_fn, buffer_size) as stream, stream.allow_buffering:
            for _ in range(2):
                found = list(stream)
                assert all(a is b for a, b in zip(found, batches, strict=True))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("left_at", range(1, 9))
def test_el13_leaving_wherever_leaves_each_epoch_its_size(size: int, left_at: int) -> None:
    model = asked(StreamWrapper(Source(3), 0, size), 12)
    source = Source(3)
    stream = StreamWrapper(source, 3, size)
    source.lets = threading.Semaphore(0)
    with stream, stream.allow_buffering:
        source.lets.release(sum(each != END for each in model[:left_at]))
        found = asked(stream, left_at)
        source.lets.release(99)
    with stream:
        assert found + asked(stream, 12 - left_at) == model


@pytest.mark.parametrize("buffer_size", [0, 2])
@pytest.mark.parametrize("epoch_size", [-1, 2])
def test_el14_an_empty_stream_is_an_empty_epoch(buffer_size: int, epoch_size: int) -> None:
    with StreamWrapper(Source(0), buffer_size, epoch_size) as stream:
        assert [list(stream) for _ in range(3)] == [[], [], []]
    with StreamWrapper(Source(3, 0, 1), buffer_size, 5) as stream:
        assert [list(stream) for _ in range(3)] == [
            [(0, 0), (0, 1), (0, 2)],
            [(2, 0), (0, 0), (0, 1), (0, 2)],
            [(2, 0), (0, 0), (0, 1), (0, 2)],
        ]


@pytest.mark.parametrize("buffer_size", [0, 2])
@pytest.mark.parametrize("epoch_size", [-1, 2])
@pytest.mark.parametrize("at", range(4))
def test_el16_after_an_error_the_same_batch_comes(
    buffer_size: int, epoch_size: int, at: int
) -> None:
    model = asked(StreamWrapper(Source(4), 0, epoch_size), 12)
    stream = StreamWrapper(failing(Source(4), (0, at), KeyError(at)), buffer_size, epoch_size)
    found: list[Any] = []
    with stream:
        while len(found) < 12:
            before = stream.state_dict()
            try:
                found.append(next(stream, END))
            except (KeyError, ChildProcessError):
                assert stream.state_dict() == before
    assert found == model


@pytest.mark.parametrize("buffer_size", [0, 2])
def test_el16_a_stop_iteration_of_a_function_ends_nothing(buffer_size: int) -> None:
    def stops() -> Any:
        raise StopIteration

    def amid() -> Iterator[int]:
        yield 1
        stops()

    for stream_fn, expected in ((stops, []), (amid, [1])):
        with StreamWrapper(stream_fn, buffer_size) as stream:
            assert asked(stream, len(expected)) == expected
            for _ in range(2):
                with pytest.raises((lz.PipelineError, ChildProcessError), match="StopIteration"):
                    next(stream)
