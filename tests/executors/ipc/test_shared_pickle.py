"""Objects that several pools share, pickled once."""

from __future__ import annotations

from lazyckpt.executors.ipc.pickler import LargeBuffers
from lazyckpt.executors.ipc.shared_pickle import PickledOnce, SharedPickle, shared_content


def test_who_stops_leaves_the_memory_to_the_others() -> None:
    """Each pool of a shared executor stops on its own, while another one may be starting."""
    made: list[SharedPickle] = []

    def make() -> SharedPickle:
        made.append(SharedPickle(b"\x80\x05K\x07.", LargeBuffers()))
        return made[-1]

    once = PickledOnce()
    with once.take(1, make), once.take(2, make):
        once.release(1)
    with once.take(3, make) as file:
        once.release(2)
        once.release(3)
        assert shared_content(file.fileno()) == 7  # a start goes on with what it has taken
    assert len(made) == 1
    assert made[0].file.closed
    with once.take(1, make):
        once.release(1)
    assert len(made) == 2
