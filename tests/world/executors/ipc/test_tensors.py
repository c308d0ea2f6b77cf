"""Tensors in messages over real pipes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.executors.ipc.pickler import LARGE
from lazyckpt.executors.ipc.transport import Unwritable
from tests.executors.ipc.test_transport import (
    BIG,
    arrive,
    exchange,
    has_data_beside_its_pickle,
    leaves,
    nested,
    own_their_memory,
    pair,
    same,
)


def tensors() -> dict[str, torch.Tensor]:
    x = torch.arange(BIG, dtype=torch.float32)
    images = torch.rand(2, 3, 64, 64)
    return {
        "plain": x,
        "small": torch.tensor([1, 2]),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 3),
        "bfloat16": x.to(torch.bfloat16),
        "complex": torch.complex(x, -x),
        "conjugate": torch.complex(x, -x).conj(),
        "bool": x > 3,
        "strided": x[::2],
        "expanded": torch.tensor([[1.0], [2.0]]).expand(2, BIG),
        "part": x[5:-5],
        "channels last": images.to(memory_format=torch.channels_last),
        "leaf": x.clone().requires_grad_(),
        "parameter": torch.nn.Parameter(x.clone()),
        "sparse": torch.eye(3).to_sparse(),
    }


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", tensors())
def test_tensors(name: str, shared: bool) -> None:
    tensor = tensors()[name]
    (got,) = exchange([tensor], shared=shared)
    if tensor.is_sparse:
        got, tensor = got.to_dense(), tensor.to_dense()
    same(got, tensor)
    if name == "channels last":
        assert got.stride() == tensor.stride()


@pytest.mark.parametrize("item", [torch.zeros(BIG), tensors()["leaf"]])
def test_the_data_of_tensors_is_not_pickled(item: Any) -> None:
    has_data_beside_its_pickle(item)


def test_a_tensor_of_a_graph_is_refused() -> None:
    with pair() as (sender, receiver):
        with pytest.raises(Unwritable, match=r"detach\(\)"):
            sender.send(torch.zeros(3, requires_grad=True) * 2)
        sender.send(1)
        assert receiver.receive().open() == 1


some = leaves | st.builds(torch.arange, st.sampled_from([0, 3, LARGE]))


@given(st.lists(nested(some), max_size=5), st.integers(1, 3), st.booleans())
def test_any_message_arrives(messages: list[Any], slots: int, shared: bool) -> None:
    arrive(messages, slots, shared)


def test_one_object_twice_is_one_object() -> None:
    x, t = np.zeros(BIG), torch.zeros(BIG)
    ((a, b, c, d),) = exchange([(x, x, t, t)])
    assert a is b
    assert c is d


def test_arrays_and_tensors_own_their_memory() -> None:
    own_their_memory(lambda size, value: [np.full(size, value), torch.full((size,), value)])
