"""Batches of torch's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.combinators import test_batch as batches

STACKED: list[tuple[list[Any], Any]] = [
    ([torch.zeros(2), torch.ones(2)], torch.tensor([[0.0, 0.0], [1.0, 1.0]])),
    ([{"t": torch.tensor(1), "n": 2}], {"t": torch.tensor([1]), "n": np.array([2])}),
]


@pytest.mark.parametrize(("items", "expected"), STACKED)
def test_stack(items: list[Any], expected: Any) -> None:
    batches.test_stack(items, expected)


@pytest.mark.parametrize(
    ("items", "error", "words"),
    [
        ([torch.zeros(2), torch.zeros(3)], ValueError, "item 1 has shape"),
        ([torch.zeros(1), np.zeros(1)], TypeError, "item 1 is array"),
    ],
)
def test_stack_refuses(items: list[Any], error: Any, words: str) -> None:
    batches.test_stack_refuses(items, error, words)


def test_parameters_and_tensors_stack_in_either_order() -> None:
    batches.test_items_of_two_types_stack_in_either_order(
        torch.nn.Parameter(torch.zeros(2)), torch.ones(2)
    )
