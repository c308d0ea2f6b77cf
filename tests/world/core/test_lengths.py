"""Lengths of torch's samplers."""

from __future__ import annotations

from torch.utils.data import BatchSampler

from tests.core import test_lengths as lengths


def test_a_batch_sampler_of_what_has_no_length_has_none() -> None:
    lengths.test_some_data_have_no_length(BatchSampler(lengths.Endless(), 2, False))
