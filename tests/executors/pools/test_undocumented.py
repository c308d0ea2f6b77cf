"""The names of multiprocessing that its documentation lacks, and this package relies on."""

from __future__ import annotations

from multiprocessing import forkserver, get_context, resource_tracker, util
from typing import Any


def test_they_are_public() -> None:
    assert "ensure_running" in resource_tracker.__all__
    assert "ensure_running" in forkserver.__all__
    assert "Finalize" in util.__all__


def ends(connection: Any) -> None:
    def say(text: str) -> None:
        connection.send(text)

    util.Finalize(None, say, args=("last",), exitpriority=1)
    util.Finalize(None, say, args=("first",), exitpriority=100)


def test_a_child_calls_finalizers_at_its_end_by_their_priority() -> None:
    context = get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=ends, args=(theirs,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert [ours.recv() for _ in range(2) if ours.poll(0)] == ["first", "last"]
