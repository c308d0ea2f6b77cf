"""`StreamWrapper` against emloop itself."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import distribution
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.compat.emloop import StreamWrapper
from tests.compat.emloop.cases import END, Source, asked, epoch_sizes, sizes
from tests.compat.emloop.test_errors import failing
from tests.compat.emloop.test_states import KINDS
from tests.compat.emloop.test_wrapper import steps


def reference() -> Any:
    """emloop's own class, without its packages, which need others that are gone (pkg_resources)."""
    root = distribution("emloop").locate_file("emloop")
    for name in ("emloop", "emloop.datasets", "emloop.utils"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    module = import_module("emloop.datasets.stream_wrapper")
    module.EL_BUFFER_SLEEP = 0  # its 0.02 s per batch aren't compared
    return module.StreamWrapper


Original = reference()


@given(sizes, epoch_sizes, st.lists(steps, max_size=30))
def test_el3_and_all_else_without_a_buffer_to_the_last_pull(
    sizes: list[int], epoch_size: int, script: list[str]
) -> None:
    times: list[dict[str, list[float]]] = [{}, {}]
    sources = Source(*sizes), Source(*sizes)
    kinds = StreamWrapper, Original
    pair = [
        kind(source, 0, epoch_size, "s", profile)
        for kind, source, profile in zip(kinds, sources, times, strict=True)
    ]
    for what in script:
        if what == "next":
            ours, theirs = (asked(stream) for stream in pair)
            assert ours == theirs
        elif what == "with":
            assert [stream.__enter__() is stream for stream in pair] == [True, True]
        elif what == "leave":
            for stream in pair:
                stream.__exit__(None, None, None)
        else:
            for stream in pair:
                with stream.allow_buffering:
                    pass
        assert sources[0].log == sources[1].log
        assert [stream.empty() for stream in pair] == [True, True]
        mine, other = ([len(each) for each in profile.values()] for profile in times)
        assert mine == other
    assert list(times[0]) == list(times[1])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 2), st.integers(1, 15))
def test_el4_one_stop_ends_an_epoch_of_one_pass_an_empty_one_too(
    sizes: list[int], buffer_size: int, times: int
) -> None:
    with StreamWrapper(Source(*sizes), buffer_size) as stream:
        assert asked(stream, times) == asked(Original(Source(*sizes)), times)
        assert iter(stream) is stream


@given(sizes, epoch_sizes, st.integers(1, 3), st.integers(1, 12))
def test_el6_the_original_with_a_buffer_gives_the_same(
    sizes: list[int], epoch_size: int, buffer_size: int, times: int
) -> None:
    found = []
    for kind in (StreamWrapper, Original):
        stream = kind(Source(*sizes), buffer_size, epoch_size)
        given: list[Any] = []
        while len(given) < times:
            with stream:  # left at the end of an epoch, as emloop's main loop does
                for batch in stream:
                    with stream.allow_buffering:
                        given.append(batch)
            given.append(END)
        found.append(given)
    assert found[0] == found[1]


def test_el5_as_in_the_original() -> None:
    for kind in (StreamWrapper, Original):
        stream = kind(Source(9), buffer_size=3)
        found = []
        for _ in range(4):
            with stream:
                found.append(next(stream))
        assert found + list(stream) == [(0, n) for n in range(9)]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # the original's
def test_el10_a_producer_that_fails_is_a_child_process_error() -> None:
    error = KeyError("broken")
    for kind in (StreamWrapper, Original):
        stream = kind(failing(Source(2), (0, 0), error), 2, name="train")
        with stream, pytest.raises(ChildProcessError):
            next(stream)
        with pytest.raises(KeyError, match="broken"):
            next(kind(failing(Source(2), (0, 0), error)))


@given(st.sampled_from(["generator", "list"]), epoch_sizes)
def test_el18_epochs_of_every_kind_are_the_originals(kind: str, epoch_size: int) -> None:
    stream_fn = KINDS[kind]([("batch", n) for n in range(5)])
    pair = StreamWrapper(stream_fn, 0, epoch_size), Original(stream_fn, 0, epoch_size)
    assert asked(pair[0], 80) == asked(pair[1], 80)
