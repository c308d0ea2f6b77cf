"""Torch's and Hugging Face's data as a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets
import pytest
import torch
import torch.utils.data

import lazyckpt as lz
from tests.combinators import test_source as sources


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < 7:
            raise IndexError(index)
        return {"x": torch.full((2,), index), "y": index}


class Flowing(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


HF = datasets.Dataset.from_dict({"x": list(range(7)), "t": list("abcdefg")})
TENSORS = torch.utils.data.TensorDataset(torch.arange(14).reshape(7, 2), torch.arange(7))

# Data with its items, and whether there is random access.
DATA: dict[str, tuple[Any, list[Any], bool]] = {
    "map-style": (Numbers(), [Numbers()[i] for i in range(7)], True),
    "tensors": (TENSORS, [TENSORS[i] for i in range(7)], True),
    "tensor": (torch.arange(4), list(torch.arange(4)), True),
    "hugging face": (HF, list(HF), True),
    "iterable style": (Flowing(), list(range(7)), False),
    "empty hugging face": (datasets.Dataset.from_dict({"x": []}), [], True),
}


@pytest.mark.parametrize(("data", "items", "access"), DATA.values(), ids=DATA)
def test_the_items_are_the_data(data: Any, items: list[Any], access: bool) -> None:
    sources.test_the_items_are_the_data(data, items, access)


@pytest.mark.parametrize("tail", sources.TAILS, ids=str)
@pytest.mark.parametrize("data", [data for data, _, _ in DATA.values()], ids=DATA)
def test_resuming_over_every_kind_of_data(data: Any, tail: lz.Stage[Any, Any]) -> None:
    sources.test_resuming_over_every_kind_of_data(data, tail)


@pytest.mark.parametrize("name", [name for name in DATA if "tensor" not in name])
def test_the_left_of_a_bar(name: str) -> None:
    data, items, _ = DATA[name]
    sources.test_the_left_of_a_bar(data, items)


def test_a_tensor_on_the_left_does_not_broadcast() -> None:
    sources.test_an_array_on_the_left_does_not_broadcast(torch.arange(3))


def test_hugging_face_is_asked_for_whole_batches() -> None:
    calls = []

    class Counting(datasets.Dataset):  # type: ignore[misc]
        def __getitems__(self, keys: list[int]) -> Any:
            calls.append(list(keys))
            return super().__getitems__(keys)

        def __getitem__(self, key: Any) -> Any:
            assert not isinstance(key, int), "one by one"
            return super().__getitem__(key)

    data = Counting(HF.data)
    pipeline = lz.source(data) | lz.shuffle(seed=0) | lz.batch(3, collate=lz.stack)
    found = list(pipeline)
    assert [len(call) for call in calls] == [3, 3, 1]
    assert [x for batch in found for x in batch["x"]] == [i for call in calls for i in call]
    assert [x for batch in found for x in batch["t"]] == ["abcdefg"[i] for c in calls for i in c]
