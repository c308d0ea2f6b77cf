"""Torch's tensors as arguments: numbers of one item are taken as ints, the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lazyckpt as lz
from tests.combinators import test_arguments as arguments

NUMBERS = [f"{kind}{end}" for kind in ("positive", "natural") for end in ("", "?")] + ["integer"]
TAKEN = arguments.cases({kind: [torch.tensor(3)] for kind in NUMBERS})
REFUSED = arguments.cases({kind: [torch.tensor(True)] for kind in NUMBERS})


@pytest.mark.parametrize(("name", "argument", "value"), TAKEN)
def test_a_tensor_that_is_a_number_is_taken(name: str, argument: str, value: Any) -> None:
    arguments.test_good_values_are_taken(name, argument, value)


@pytest.mark.parametrize(("name", "argument", "value"), REFUSED)
def test_a_tensor_that_is_no_number_is_refused(name: str, argument: str, value: Any) -> None:
    arguments.test_bad_values_are_refused(name, argument, value)


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
    arguments.test_data_that_cannot_be_a_source(torch.tensor(3), "list")
