"""Items on their way to a device: real torch, on the CPU, and on a GPU if there is one."""

from __future__ import annotations

import pickle
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import lazyckpt as lz
from lazyckpt.executors.device import DeviceTransfer
from tests.executors.cases import PIPELINES, Stream, image, square, until_error


class Pair(NamedTuple):
    x: Any
    y: Any


EXECUTORS = {
    "inline": lz.inline(),
    "one thread": lz.threads(1),
    "threads": lz.threads(2),
    "gated": lz.threads(2, gated=True),
    "processes": lz.processes(2),
}


@pytest.fixture(params=[False, True], ids=["when asked for", "one ahead"])
def is_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """To a CPU nothing is sent ahead; the walk that does so is the same."""
    monkeypatch.setattr(DeviceTransfer, "is_ahead", request.param)
    return bool(request.param)


def moved(item: Any, device: str = "cpu") -> Any:
    """The only item of a run."""
    return next(lz.run(lz.source([item]), executor=lz.to_device(lz.inline(), device)))


# --- leaves and containers ---


@pytest.mark.parametrize(
    "dtype", ["bool", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
)
def test_arrays_of_numbers_become_tensors(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = moved(array)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.device == torch.device("cpu")
    assert np.array_equal(tensor.numpy(), array)
    assert np.shares_memory(tensor.numpy(), array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6)[::-1],
        np.arange(6, dtype=">i4"),
        np.frombuffer(b"abcd", np.uint8),
        np.zeros(3, [("a", "i1"), ("b", "i4")])["b"],  # strides of 5 bytes
        np.zeros((0, 3)),
        np.array(3.0),
    ],
    ids=["backwards", "big endian", "read only", "a field", "empty", "a scalar"],
)
def test_arrays_that_a_tensor_cannot_share(array: Any) -> None:
    tensor = moved(array)
    assert isinstance(tensor, torch.Tensor)
    assert np.array_equal(tensor.numpy(), array)
    tensor += 1


@pytest.mark.parametrize(
    "leaf",
    [
        "text",
        b"bytes",
        7,
        None,
        np.float32(1.5),
        np.array(["a", "b"]),
        np.array([object()]),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(2, np.longdouble),
        np.ma.masked_array([1, 2], [0, 1]),
        {1, 2},
        range(3),
    ],
    ids=lambda leaf: type(leaf).__name__,
)
def test_other_leaves_stay_as_they_are(leaf: Any) -> None:
    assert moved(leaf) is leaf


def test_a_tensor_that_is_there_stays_the_same() -> None:
    tensor = torch.arange(3)
    assert moved(tensor) is tensor
    assert moved((tensor,))[0] is tensor


def test_containers_keep_their_types() -> None:
    array = np.arange(3)
    default = defaultdict(list, a=array)
    item = [
        {"a": array, "b": [array, "text"]},
        (array, {"c": array}),
        Pair(array, Pair("text", array)),
        OrderedDict(a=array),
        default,
        UserDict(a=array),
    ]
    found = moved(item)
    assert repr(found) == repr(item).replace("array([0, 1, 2])", "tensor([0, 1, 2])")
    assert list(map(type, found)) == list(map(type, item))
    assert found[4].default_factory is list
    assert default["a"] is array  # the original is unchanged


def test_another_device() -> None:
    item = moved({"a": np.arange(3), "b": torch.zeros(2)}, "meta")
    assert {each.device.type for each in item.values()} == {"meta"}


# --- the run ---


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_items_order_and_states(executor: str, name: str, is_ahead: bool) -> None:
    pipeline = PIPELINES[name]
    inner = EXECUTORS[executor]
    expected = trace(pipeline)
    found = trace(pipeline, lz.to_device(inner, "cpu"))
    assert [state for _, state in found] == [state for _, state in expected]
    assert [plain(item) for item, _ in found] == [plain(item) for item, _ in expected]


def trace(pipeline: Any, executor: lz.Executor | None = None) -> list[Any]:
    """Items, each with the JSON of the state after it."""
    with lz.run(pipeline, executor=executor) as run:
        return [(item, state.to_json()) for item, state in run.with_state()]


def plain(item: Any) -> Any:
    """Arrays and tensors as lists."""
    if isinstance(item, dict):
        return {key: plain(value) for key, value in item.items()}
    if isinstance(item, tuple):
        return tuple(map(plain, item))
    return item.tolist() if hasattr(item, "tolist") else item


@pytest.mark.parametrize("inner", [lz.inline(), lz.threads(2)])
def test_a_state_is_that_after_the_delivered_item(inner: lz.Executor, is_ahead: bool) -> None:
    pipeline = lz.source(Stream(20)) | lz.map(square) | lz.batch(3)
    executor = lz.to_device(inner, "cpu")
    items = list(pipeline)
    for cut in range(len(items)):
        with lz.run(pipeline, executor=executor) as run:
            assert [next(run) for _ in range(cut)] == items[:cut]
            assert run.state == lz.state_at(pipeline, cut)
            state = run.state
            assert list(run) == items[cut:]
            assert run.state == list(lz.run(pipeline).with_state())[-1][1]
        assert list(lz.run(pipeline, state, executor=executor)) == items[cut:]


@pytest.mark.parametrize("inner", [lz.inline(), lz.threads(2)])
def test_an_error_comes_after_the_items_before_it(inner: lz.Executor, is_ahead: bool) -> None:
    mended: list[bool] = []

    def fails(x: int) -> int:
        if x == 5 and not mended:
            raise OSError("five")
        return x

    run = lz.run(lz.source(Stream(9)) | lz.map(fails), executor=lz.to_device(inner, "cpu"))
    for expected in ([*range(5)], []):
        items, error = until_error(run)
        assert items == expected
        assert type(error) is OSError
        assert "in map(fails), built at" in "\n".join(error.__notes__)
        assert run.state.items == 5
    mended.append(True)
    assert list(run) == [5, 6, 7, 8]


def test_an_error_of_moving_names_no_stage(is_ahead: bool) -> None:
    class Unmovable(torch.Tensor):
        def to(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no room")

    bad = torch.zeros(2).as_subclass(Unmovable)
    run = lz.run(lz.source([1, 2, bad]), executor=lz.to_device(lz.inline(), "cpu"))
    items, error = until_error(run)
    assert items == [1, 2]
    assert type(error) is RuntimeError
    assert error.__notes__[0] == "lazyckpt: in to_device(inline(), 'cpu'), after 2 delivered items"


class Opened:
    """A stream that counts how often it is open."""

    def __init__(self) -> None:
        self.open = 0

    def __iter__(self) -> Iterator[int]:
        self.open += 1
        try:
            yield from range(9)
        finally:
            self.open -= 1


def test_leaving_closes_what_is_open(is_ahead: bool) -> None:
    source = Opened()
    run = lz.run(lz.source(source), executor=lz.to_device(lz.inline(), "cpu"))
    items = []
    for _ in range(3):
        with run:
            items += [next(run), next(run)]
            assert source.open == 1
            assert run.state.items == len(items)
        assert source.open == 0
        assert run.state.items == len(items)
    with run:
        items += list(run)
    assert items == [*range(9)]


def test_one_item_ahead_and_no_more(is_ahead: bool) -> None:
    made: list[int] = []
    pipeline = lz.source(range(9)) | lz.tap(made.append)
    run = lz.run(pipeline, executor=lz.to_device(lz.inline(), "cpu"))
    for number in range(3):
        assert next(run) == number
        assert made == [*range(number + 1 + is_ahead)]
    run.pause()  # now nothing
    for number in range(3, 6):
        assert next(run) == number
        assert made == [*range(max(number, 3) + 1)]


def test_from_processes_to_a_device(is_ahead: bool) -> None:
    pipeline = lz.source(range(5)) | lz.map(image)
    with lz.run(pipeline, executor=lz.to_device(lz.processes(2), "cpu")) as run:
        for number, item in enumerate(run):
            assert torch.equal(item["pixels"], torch.full((64, 80), float(number)))
            assert isinstance(item["box"][0], torch.Tensor)
            assert item["label"] == number


# --- the value ---


def test_the_value() -> None:
    executor = lz.to_device(lz.threads(2), "cuda:1")
    assert repr(executor) == "to_device(threads(workers=2), 'cuda:1')"
    assert executor == lz.to_device(lz.threads(2), torch.device("cuda", 1))
    assert executor != lz.to_device(lz.threads(3), "cuda:1")
    assert pickle.loads(pickle.dumps(executor)) == executor
    assert hash(executor) == hash(pickle.loads(pickle.dumps(executor)))


def test_what_runs_where() -> None:
    pipeline = lz.source(range(9)) | lz.map(square)
    found = lz.explain(pipeline, lz.to_device(lz.threads(2), "cuda"))
    assert [*found.layout.splitlines(), *found.memory.splitlines()] == [
        "source(range(0, 9)) | map(square)  in 2 threads, by random access; prefetch 4",
        "copy to 'cuda'                     on a separate stream; prefetch 1",
        "memory: stages have their own buffers; items below 256 KiB travel in chunks of at most",
        "  256 KiB and 16,384 items, with 3 chunks per worker, 2 more chunks, and 2 more items",
    ]


def test_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lz.ArgumentError, match=r"must be an executor, such as inline\(\)"):
        lz.to_device("cuda", lz.inline())  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match="must be a device as torch names it"):
        lz.to_device(lz.inline(), "gpu")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(lz.ArgumentError, match="torch is not installed"):
        lz.to_device(lz.inline(), "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_such_device() -> None:
    with pytest.raises(lz.ArgumentError, match="no CUDA device"):
        lz.run(lz.source([1]), executor=lz.to_device(lz.inline(), "cuda"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("inner", [lz.inline(), lz.threads(2), lz.processes(2)])
def test_a_gpu(inner: lz.Executor) -> None:
    pipeline = lz.source(range(200)) | lz.map(image)
    total = torch.zeros((), device="cuda")
    with lz.run(pipeline, executor=lz.to_device(inner, "cuda")) as run:
        for number, item in enumerate(run):
            assert item["pixels"].is_cuda
            total += item["pixels"].mul(1.0).mean()  # on the consumer's stream, immediately
            del item
            assert run.state.items == number + 1
    assert total.item() == sum(range(200))
