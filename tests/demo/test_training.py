"""The demo's training: one that is cut anywhere ends as one left alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.demo.training import Bigrams, Checkpoint, join, pipeline_of, tokenise, train
from tests.demo.cases import ignore, small_job


class Cut(Exception):
    pass


def cut_after(words: int) -> Callable[..., None]:
    """A listener that ends the training at its n-th word, wherever it then is."""
    numbers = count(1)

    def say(*_: Any) -> None:
        if next(numbers) == words:
            raise Cut

    return say


@settings(max_examples=max(10, settings.default.max_examples // 4))
@given(cuts=st.lists(st.integers(1, 30), max_size=6))
def test_a_training_cut_anywhere_ends_as_one_left_alone(folder: Path, cuts: list[int]) -> None:
    text = folder / "text"
    text.write_bytes(b"".join(b"%d\n" % (i * i) for i in range(500)))
    job = small_job(text, 2_000)
    alone, cut = folder / "alone.npz", folder / "cut.npz"
    if not alone.exists():
        train(job, alone, ignore)
    cut.unlink(missing_ok=True)
    for words in cuts:
        try:
            train(job, cut, cut_after(words))
        except Cut:
            continue
    train(job, cut, ignore)
    found, expected = Checkpoint.load(cut), Checkpoint.load(alone)
    assert found.state == expected.state
    assert found.digest == expected.digest
    assert found.model.digest() == expected.model.digest()
    assert found.state.items == job.batches


@given(
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=4).filter(any),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_every_line_is_in_as_many_batches_as_there_are_epochs(
    folder: Path, sizes: list[int], epochs: int, seed: int
) -> None:
    texts = folder / "texts"
    shutil.rmtree(texts, ignore_errors=True)
    texts.mkdir()
    for number, size in enumerate(sizes):
        (texts / f"{number}").write_bytes(b"".join(b"%d %d\n" % (number, i) for i in range(size)))
    job = small_job(texts, epochs * sum(sizes), seed)
    batches = list(pipeline_of(job))
    assert job.epochs == epochs
    assert len(batches) == job.batches
    found = [line for batch in batches for line in batch[1:].tobytes().splitlines()]
    expected = [b"%d %d" % (n, i) for n, size in enumerate(sizes) for i in range(size)]
    assert sorted(found) == sorted(expected * epochs)


@given(st.lists(st.binary(max_size=9).filter(lambda line: not {10, 13} & set(line))))
def test_joined_lines_are_one_text_after_a_newline(lines: list[bytes]) -> None:
    expected = b"\n" + b"".join(line + b"\n" for line in lines)
    for end in (b"", b"\n", b"\r\n"):
        assert join([tokenise(line + end) for line in lines]).tobytes() == expected


@given(st.binary(min_size=2, max_size=50))
def test_the_loss_is_the_cross_entropy_and_falls(text: bytes) -> None:
    model = Bigrams.new()
    tokens = np.frombuffer(text, np.uint8)
    assert model.learn(tokens) == pytest.approx(8)
    weights = model.weights.astype(float)
    odds = np.exp(weights) / np.exp(weights).sum(axis=1, keepdims=True)
    naive = np.mean([-np.log2(odds[a, b]) for a, b in pairwise(text)])
    assert model.learn(tokens) == pytest.approx(naive, rel=1e-4)
    assert naive < 8


def test_a_save_that_is_cut_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.npz"
    state = lz.init(lz.source([1]))
    old, new = (
        Checkpoint(Bigrams.new(), state, bytes(32)),
        Checkpoint(Bigrams.new(), state, b"1" * 32),
    )
    old.save(path)
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, cut_after(1))
            with pytest.raises(Cut):
                new.save(path)
        assert Checkpoint.load(path).digest == old.digest
    new.save(path)
    assert Checkpoint.load(path).digest == new.digest
    assert Checkpoint.load(path).state == state
