"""Executors as values: equal, hashable, picklable, shown as they were built, and checked."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import lazyckpt as lz
from tests.executors.cases import odd

NUMBERS = lz.source(range(100))
POOL = ThreadPoolExecutor(1)  # without threads, as nothing is submitted

SHOWN: dict[str, Any] = {
    "inline()": lz.inline,
    "threads(workers=2, buffer_size=4)": lambda: lz.threads(2, buffer_size=4),
    "processes(start_method='spawn')": lambda: lz.processes(start_method="spawn"),
    "processes(workers=2, timeout=30.0, retries=2)": lambda: lz.processes(2, timeout=30, retries=2),
    "processes(worker_init=odd)": lambda: lz.processes(worker_init=odd),
    "ray(workers=2, num_cpus=1, resources={'loader': 1})": lambda: lz.ray(
        workers=2, num_cpus=1, resources={"loader": 1}
    ),
    "futures(<ThreadPoolExecutor>, buffer_size=3)": lambda: lz.futures(POOL, buffer_size=3),
}


@pytest.mark.parametrize("shown", SHOWN)
def test_executors_are_values(shown: str) -> None:
    executor = SHOWN[shown]()
    assert repr(executor) == shown
    assert executor == SHOWN[shown]()
    assert hash(executor) == hash(SHOWN[shown]())
    assert executor == executor.public(**executor.arguments)
    assert [executor == make() for make in SHOWN.values()].count(True) == 1
    with pytest.raises(AttributeError, match="is immutable"):
        executor.arguments = {}
    if "futures" not in shown:
        assert pickle.loads(pickle.dumps(executor)) == executor
        return
    assert executor != lz.futures(POOL, buffer_size=4)
    assert executor != lz.futures(ThreadPoolExecutor(1), buffer_size=3)
    with pytest.raises((TypeError, pickle.PicklingError), match="pickle"):
        pickle.dumps(executor)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lz.threads(0), "threads: workers must be an int >= 1, got workers=0"),
        (lambda: lz.threads(True), "workers=True"),
        (lambda: lz.processes(2.0), "workers=2.0"),  # type: ignore[arg-type]
        (lambda: lz.processes(buffer_size=0), "buffer_size=0"),
        (lambda: lz.processes(start_method="thread"), "'forkserver', 'spawn' or 'fork'"),
        (lambda: lz.processes(2, retries=-1), "retries must be an int >= 0, got retries=-1"),
        (lambda: lz.threads(timeout=0), "a number of seconds above 0"),
        (lambda: lz.threads(timeout=float("nan")), "timeout=nan"),
        (lambda: lz.processes(worker_init=3), "worker_init must be callable"),  # type: ignore[arg-type]
        (lambda: lz.threads(1, 2), "threads: too many positional"),  # type: ignore[call-arg]
        (lambda: lz.threads(num_workers=2), r"num_workers.*threads\(workers=\d*, \*, buffer"),  # type: ignore[call-arg]
        (lambda: lz.threads(retries=1), "retries"),  # type: ignore[call-arg]  # it can end none
        (lambda: lz.inline(retries=1), "retries"),  # type: ignore[call-arg]
        (lambda: lz.futures(4, buffer_size=1), "must be a concurrent.futures.Executor"),
        (
            lambda: lz.futures(ThreadPoolExecutor, buffer_size=1),
            "must be a concurrent.futures.Executor",
        ),
        (lambda: lz.futures(POOL), "buffer_size"),  # type: ignore[call-arg]
        (lambda: lz.futures(POOL, buffer_size=0), "buffer_size must be an int >= 1"),
        (lambda: lz.ray(workers=0), "workers must be an int >= 1"),
        (lambda: lz.ray(), "workers"),  # type: ignore[call-arg]
        (lambda: lz.run(NUMBERS, executor=4), r"write threads\(4\) or processes\(4\)"),  # type: ignore[arg-type]
        (lambda: lz.run(NUMBERS, executor=lz.threads), r"write threads\(\)"),  # type: ignore[arg-type]
        (lambda: lz.run(NUMBERS, executor="threads"), "got 'threads'"),  # type: ignore[arg-type]
        (lambda: lz.run(NUMBERS, executor=POOL), r"write futures\("),  # type: ignore[arg-type]
        (lambda: lz.explain(lz.batch(2), lz.threads()), r"write source\(data\)"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises((lz.ArgumentError, TypeError), match=message):
        make()


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(lz.ArgumentError, match=r"lazyckpt\[ray\]"):
        lz.run(lz.source([1]), executor=lz.ray(workers=1))
