"""`head` of torch's tensors."""

from __future__ import annotations

import pytest
import torch

from lazyckpt.pictures.values import lines
from tests import test_preview as preview


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.arange(4), ("Tensor", "(4,)", "torch.int64", "32 B", "[0, 1, 2, 3]")),
        (torch.ones(()), ("Tensor", "()", "torch.float32", "4 B", "1.0")),
    ],
)
def test_what_is_told_of_a_tensor(tensor: torch.Tensor, expected: tuple[str, ...]) -> None:
    preview.test_what_is_told_of_an_item(tensor, expected)


def test_a_tensor_among_few_parts_has_no_line_of_its_own() -> None:
    item = {"sample": preview.Sample("a", [torch.ones(1), {"deep": {}}])}
    names = [line.name for line in lines("0", item)]
    assert names == ["0", "0['sample']", "0['sample'].text", "0['sample'].tokens"]
