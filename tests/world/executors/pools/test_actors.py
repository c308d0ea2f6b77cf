"""Ray actors, on a Ray of this machine."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.core.call import same
from tests.executors.cases import PIPELINES, Stream, image, like_inline, square, trace, until_error
from tests.helpers import is_alive, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what its packages say at import
    import ray


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the workers' too
        patch.setenv("RAY_AUTH_MODE", "disabled")  # which else writes a token
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about future versions
            ray.init(
                "local",  # never a cluster of other tests
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=100 << 20,
                log_to_driver=False,
                logging_level="error",
            )
        yield
        ray.shutdown()


@pytest.mark.parametrize("name", PIPELINES)
def test_items_order_and_states_are_those_of_inline(name: str) -> None:
    like_inline(PIPELINES[name], lz.ray(workers=2), stride=None)


def test_one_actor_walks_through_a_stream() -> None:
    like_inline(PIPELINES["stream"], lz.ray(workers=1, num_cpus=0.5), stride=6)


def test_states_resume_elsewhere() -> None:
    pipeline = PIPELINES["dicts"]
    expected = trace(pipeline)
    with lz.run(pipeline, expected[2][1], executor=lz.ray(workers=2)) as run:
        assert same(next(run), expected[3][0])
        state = run.state
    assert same(trace(pipeline, lz.threads(2), state), expected[4:])


def test_arrays_can_be_written_to() -> None:
    with lz.run(lz.source([0, 1]) | lz.map(image), executor=lz.ray(workers=1)) as run:
        for number, item in enumerate(run):
            item["pixels"] += 1
            assert (item["pixels"] == number + 1).all()


class Images:
    def __iter__(self) -> Iterator[Any]:
        return map(image, range(5))


def doubled(item: dict[str, Any]) -> Any:
    item["pixels"] *= 2
    return item["pixels"]


def test_large_items_into_tasks() -> None:
    pipeline = lz.source(Images()) | lz.map(doubled)
    with lz.run(pipeline, executor=lz.ray(workers=2)) as run:
        for ours, theirs in zip(run, pipeline, strict=True):
            assert np.array_equal(ours, theirs)


class Odd(Exception):
    pass


def test_an_error_comes_in_its_turn_and_the_run_goes_on(tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def fails(x: int) -> int:
        if x == 7 and not mended.exists():
            raise Odd("seven")
        return x

    with lz.run(lz.source(Stream(12)) | lz.map(fails), executor=lz.ray(workers=2)) as run:
        items, error = until_error(run)
        assert items == [*range(7)]
        assert type(error) is Odd
        note = "\n".join(error.__notes__)
        assert "map(fails), built at" in note
        assert "after 7 delivered items" in note
        assert "in fails" in note  # the worker's traceback
        assert run.state.items == 7
        mended.touch()
        assert list(run) == [*range(7, 12)]


@pytest.mark.parametrize("source", [range(12), Stream(12)], ids=["seekable", "stream"])
def test_an_actor_that_dies(source: Any, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def deadly(x: int) -> int:
        if x == 5 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    with lz.run(lz.source(source) | lz.map(deadly), executor=lz.ray(workers=2)) as run:
        items, error = until_error(run)
        assert type(error) is lz.WorkerDied
        assert isinstance(error.__cause__, ray.exceptions.RayActorError)
        assert run.state.items == len(items) <= 5
        assert items + list(run) == [*range(12)]


def test_a_task_that_hangs(tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def hangs(x: int) -> int:
        while x == 3 and not mended.exists():
            os.sched_yield()
        return x

    pipeline = lz.source(range(6)) | lz.map(hangs)
    with lz.run(pipeline, executor=lz.ray(workers=1, timeout=15)) as run:  # a start too
        items, error = until_error(run)
        assert type(error) is lz.WorkerTimeout
        mended.touch()
        assert items + list(run) == [*range(6)]


def test_leaving_kills_the_actors_and_leaves_ray() -> None:
    pipeline = lz.source(range(10**6)) | lz.map(lambda x: (x, os.getpid()))
    run = lz.run(pipeline, executor=lz.ray(workers=2))
    for begin in (0, 10):
        with run:
            items, actors = zip(*islice(run, 10), strict=True)
            assert items == tuple(range(begin, begin + 10))
        for actor in actors:
            until(lambda actor=actor: not is_alive(actor))  # Ray kills them in its own time
    assert ray.is_initialized()


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    with tmp_path.joinpath("open").open("w") as file:
        pipeline = lz.source([1, 2]) | lz.map(lambda x: file.write(str(x)))
        with pytest.raises(lz.PipelineError, match=r"map\(<lambda>\), built at .* can't be sent"):
            list(lz.run(pipeline, executor=lz.ray(workers=1)))


def test_options_that_ray_does_not_know() -> None:
    with pytest.raises(lz.ArgumentError, match="num_cpu"):
        lz.run(lz.source([1]), executor=lz.ray(workers=1, num_cpu=1))


def test_what_runs_where() -> None:
    several = lz.explain(lz.source(range(9)) | lz.map(square), lz.ray(workers=3))
    assert several.layout.splitlines()[0] == (
        "source(range(0, 9)) | map(square)  in 3 Ray actors, by random access; prefetch 5"
    )
    one = lz.explain(lz.source(Stream(9)) | lz.map(square), lz.ray(workers=1))
    assert one.layout.splitlines()[0] == (
        "source(<Stream>) | map(square)  in one Ray actor, as one stream; prefetch 3"
    )
