"""Torch's tensors as arguments: numbers of one item are taken as ints, the rest is refused."""

from __future__ import annotations

import pytest
import torch

import lazyckpt as lz
from tests.combinators import test_arguments as arguments
from tests.combinators import test_source as sources

NUMBERS = [f"{kind}{end}" for kind in ("positive", "natural") for end in ("", "?")] + ["integer"]


@pytest.mark.parametrize("name", arguments.KINDS)
def test_a_tensor_that_is_a_number_is_taken_and_no_other(name: str) -> None:
    arguments.check_taken(name, {kind: [torch.tensor(3)] for kind in NUMBERS})
    arguments.check_refused(name, {kind: [torch.tensor(True)] for kind in NUMBERS})


@pytest.mark.parametrize(
    "tensor", [torch.ones(3, dtype=torch.bfloat16), torch.ones(3, requires_grad=True)]
)
def test_a_tensor_that_is_no_array(tensor: torch.Tensor) -> None:
    message = arguments.refusal(lambda: lz.columns(x=[1, 2, 3], weight=tensor))
    assert message.startswith("columns: weight can't be made a NumPy array: ")
    assert ".detach().cpu()" in message
    assert ".float()" in message
    assert len(lz.columns(weight=tensor.detach().cpu().float())) == 3


def test_a_tensor_that_is_a_number_is_no_source() -> None:
    sources.test_data_that_cannot_be_a_source(torch.tensor(3), "list")
