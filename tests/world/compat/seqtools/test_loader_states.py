"""States of a `DataLoader` compared with torch's, and of torch's samplers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import RandomSampler

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import plain
from tests.compat.seqtools.test_loader_states import (
    KINDS,
    arguments,
    resumes_anywhere,
    workers_make_the_same,
)
from tests.world.compat.seqtools.cases import IterableTen


@given(arguments((*KINDS, "iterable"), torch.utils.data), st.data())
def test_sq1_batches_are_torchs_and_resume_anywhere(
    given_: tuple[Any, dict[str, Any]], data: st.DataObject
) -> None:
    dataset, options = given_
    if not hasattr(dataset, "__getitem__"):
        dataset = IterableTen(dataset.size)
    other = TorchLoader(dataset, **options)
    expected = plain(list(other))
    if hasattr(dataset, "__len__"):
        assert len(other) == len(expected[1])
    cut = data.draw(st.integers(0, len(expected[1])))
    resumes_anywhere(dataset, options, expected, cut)


@settings(max_examples=6)
@given(arguments(KINDS, torch.utils.data), st.data())
def test_sq1_workers_make_torchs_batches_and_the_same_states(
    given_: tuple[Any, dict[str, Any]], data: st.DataObject
) -> None:
    dataset, options = given_
    expected = plain(list(TorchLoader(dataset, **options, num_workers=2)))
    cut = data.draw(st.integers(0, len(expected[1])))
    workers_make_the_same(dataset, options, expected, cut)


def test_sq1_states_of_other_generators_are_refused() -> None:
    drawing = ours.DataLoader(
        range(9), 2, sampler=RandomSampler(range(9), generator=torch.Generator())
    )
    drawn = drawing.state_dict()
    for bad in ([1], 3, "0x1 q", None):
        with pytest.raises(lz.InvalidState):
            drawing.load_state_dict({**drawn, "seeds": bad})
    with pytest.raises(lz.StateMismatch, match="2 generators"):
        drawing.load_state_dict({**drawn, "seeds": "0x1 0x2 0x3"})
