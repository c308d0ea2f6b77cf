"""Two ranks killed amid a step, resumed by three, then by one: the same rows are trained on."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from pathlib import Path

from tests.world.integrations import pretraining
from tests.world.integrations.pretraining import ATTEMPTS, BATCH, SAVES, packed, write_corpus
from tests.world.integrations.trainer_cases import runs

Row = tuple[list[int], list[int]]  # tokens, and which document each is of


def all_rows(folder: Path) -> list[Row]:
    """The rows of an undisturbed run on one rank."""
    return [(row["tokens"].tolist(), row["segment_ids"].tolist()) for row in packed(folder)]


def dealt(batches: list[list[list[Row]]]) -> list[Row]:
    """The rows of ranks' batches in the order of the stream, which `shard` deals out."""
    ranks = [[row for batch in of_rank for row in batch] for of_rank in batches]
    return [row for of_all in zip(*ranks, strict=True) for row in of_all]


def documents(rows: list[Row]) -> Counter[str]:
    found: Counter[str] = Counter()
    for tokens, segments in rows:
        of_row = groupby(zip(segments, tokens, strict=True), key=lambda pair: pair[0])
        texts = [bytes(token for _, token in pairs).decode() for number, pairs in of_row if number]
        found.update(texts)
    return found


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


def test_killed_on_two_ranks_resumed_on_three_then_on_one(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    runs(pretraining.__file__, tmp_path)
    found, expected = trained_on(tmp_path), all_rows(tmp_path)
    expected = expected[: len(expected) // BATCH * BATCH]  # the rest is no batch
    assert found == expected
    assert documents(found) == documents(expected)
    assert {*documents(found).values()} == {1}
