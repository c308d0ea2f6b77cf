"""Two ranks killed amid a step, resumed by three, then by one: the same rows are trained on."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch

import lazyckpt as lz
from tests.world.integrations import pretraining
from tests.world.integrations.pretraining import (
    ATTEMPTS,
    BATCH,
    LENGTH,
    NUM_BINS,
    SAVES,
    DataLoader,
    packed,
    tokenized,
    write_corpus,
)
from tests.world.integrations.trainer_cases import runs

Row = tuple[list[int], list[int]]  # tokens, and which document each is of


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def all_rows(folder: Path) -> list[Row]:
    """The rows of an undisturbed run on one rank."""
    return [(row["tokens"].tolist(), row["segment_ids"].tolist()) for row in packed(folder)]


def dealt(batches: list[list[list[Row]]]) -> list[Row]:
    """The rows of ranks' batches in the order of the stream, which `shard` deals out."""
    ranks = [[row for batch in of_rank for row in batch] for of_rank in batches]
    return [row for of_all in zip(*ranks, strict=True) for row in of_all]


def rows_of(batch: pretraining.Batch) -> list[Row]:
    inputs, _ = batch
    return [*zip(inputs["input"].tolist(), inputs["segments"].tolist(), strict=True)]


def documents(rows: list[Row]) -> Counter[str]:
    found: Counter[str] = Counter()
    for tokens, segments in rows:
        of_row = groupby(zip(segments, tokens, strict=True), key=lambda pair: pair[0])
        texts = [bytes(token for _, token in pairs).decode() for number, pairs in of_row if number]
        found.update(texts)
    return found


# --- killed, and resumed by other numbers of ranks ---


def trained_on(folder: Path) -> list[Row]:
    """The rows the model has seen, without those of steps between a save and a kill."""
    rows: list[Row] = []
    for attempt, (ranks, killed_at) in enumerate(ATTEMPTS):
        kept: list[list[list[Row]]] = []
        for rank in range(ranks):
            lines = (folder / f"rank{rank}.jsonl").read_text().splitlines()
            notes = [note for note in map(json.loads, lines) if note["attempt"] == attempt]
            steps = [note["step"] for note in notes]
            assert steps == [*range(1, killed_at or len(notes) + 1)]
            last = len(steps) - len(steps) % SAVES if killed_at else len(steps)
            assert not killed_at or last < len(steps)  # so that steps are done again
            kept.append([[*zip(*note["rows"], strict=True)] for note in notes[:last]])
        rows += dealt(kept)
    return rows


def test_killed_on_two_ranks_resumed_on_three_then_on_one(corpus: Path) -> None:
    runs(pretraining.__file__, corpus)
    found, expected = trained_on(corpus), all_rows(corpus)
    expected = expected[: len(expected) // BATCH * BATCH]  # the rest is no batch
    assert found == expected
    assert documents(found) == documents(expected)
    assert {*documents(found).values()} == {1}


# --- what of that needs no training ---


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_end_together_and_leave_out_less_than_a_step(ranks: int, corpus: Path) -> None:
    loaders = [
        DataLoader(corpus, dp_world_size=ranks, dp_rank=rank, batch_size=BATCH)
        for rank in range(ranks)
    ]
    batches = [[rows_of(batch) for batch in loader] for loader in loaders]
    assert len({len(of_rank) for of_rank in batches}) == 1
    found, expected = dealt(batches), all_rows(corpus)
    assert found == expected[: len(found)]
    assert len(expected) - len(found) < ranks * BATCH
    assert len({json.dumps(loader.state_dict()) for loader in loaders}) == 1
    for loader in loaders:
        loader.close()


def test_inputs_and_labels_are_tensors_and_labels_stay_within_a_document(corpus: Path) -> None:
    data = DataLoader(corpus, dp_world_size=1, dp_rank=0, batch_size=BATCH)
    inputs, labels = next(iter(data))
    data.close()
    assert {value.shape for value in (*inputs.values(), labels)} == {(BATCH, LENGTH)}
    assert isinstance(labels, torch.Tensor)
    goes_on = labels != pretraining.IGNORED
    assert torch.equal(labels[goes_on], inputs["input"].roll(-1, 1)[goes_on])
    assert torch.equal(goes_on.sum(1), (inputs["positions"] > 0).sum(1))


def tokenized_where(document: dict[str, str]) -> dict[str, list[int]]:
    tokens = tokenized(document)
    return {"tokens": tokens, "process": [os.getpid()] * len(tokens)}


def test_one_pool_of_processes_tokenizes_all_sources(corpus: Path) -> None:
    with lz.run(packed(corpus, tokenized_where), executor=lz.processes(2)) as run:
        rows = list(run)
    assert [row["tokens"].tolist() for row in rows] == [tokens for tokens, _ in all_rows(corpus)]
    processes = np.unique(np.concatenate([row["process"] for row in rows]))
    assert 1 <= len({*processes.tolist()} - {0}) <= 2
    assert os.getpid() not in processes


def test_a_resume_tokenizes_again_what_is_in_the_rows_under_way_and_no_more(corpus: Path) -> None:
    done: list[str] = []

    def noting(document: dict[str, str]) -> list[int]:
        done.append(document["text"])
        return tokenized(document)

    pipeline = packed(corpus, noting) | lz.shard(num_shards=3, index=1)
    with lz.run(pipeline) as run:
        for _ in run:
            before, state = [*done], run.state
            with lz.run(pipeline, state) as resumed:
                done.clear()
                next(resumed, None)
                again = [text for text in done if text in before]
            assert len(again) == len({*again})
            assert sum(map(len, again[:-1])) <= NUM_BINS * LENGTH  # the last opened other rows
            assert len(state.to_json()) < 1024
            done[:] = before
