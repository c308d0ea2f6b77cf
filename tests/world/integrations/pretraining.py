"""A small GPT on packed rows of JSON lines, trained by ranks that are killed, and replaced by more.

Run as a script with a folder it trains: `python pretraining.py FOLDER`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which optimizers import: once, before ranks are forked
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.stateful import Stateful
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import lazyckpt as lz
from tests.world.integrations.forks import (
    KEPT,
    codes,
    end_all,
    forked,
    is_where_it_is_killed,
    killed,
)

LENGTH, NUM_BINS = 48, 4  # tokens per row, rows filled simultaneously
BATCH, SAVES = 2, 2  # rows a rank and step, steps from save to save
ATTEMPTS = [(2, 6), (3, 4), (1, 0)]  # ranks, and the step amid which they are killed, if any
IGNORED = -100  # a label that no loss is taken of

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]


def write_corpus(folder: Path) -> None:
    """Two sources of documents that can be told apart, every fifth of them too short."""
    for source, count in (("web", 90), ("code", 60)):
        for part in range(2):
            texts = [f"{source} {n}" + " and on" * (n % 5) for n in range(part, count, 2)]
            lines = "\n".join(json.dumps({"text": text}) for text in texts)
            (folder / f"{source}-{part}.jsonl").write_text(lines)


def is_long(document: dict[str, str]) -> bool:
    return document["text"].endswith("on")


def tokenized(document: dict[str, str]) -> list[int]:
    return [*document["text"].encode()]


def documents(folder: Path, name: str) -> lz.Pipeline[dict[str, str]]:
    """The documents of one source, in their own order; ranks and restarts share the index."""
    rows = lz.io.read_jsonl(f"{folder}/{name}-*.jsonl", index_dir=folder)
    return lz.source(rows, name=name) | lz.shuffle(seed=1) | lz.filter(is_long)


def packed(folder: Path, tokenize: Callable[[Any], Any] = tokenized) -> lz.Pipeline[dict[str, Any]]:
    """All rows, as one process has them."""
    sources = [documents(folder, name) | lz.map(tokenize) for name in ("web", "code")]
    return lz.mix(sources, [2, 1], seed=0) | lz.pack_first_fit(LENGTH, num_bins=NUM_BINS)


def inputs_and_labels(rows: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The input of torchtitan's trainer: labels are the next tokens of the same document."""
    tokens, segments = rows["tokens"], rows["segment_ids"]
    labels = np.full_like(tokens, IGNORED)
    is_same = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    labels[:, :-1][is_same] = tokens[:, 1:][is_same]
    return {"input": tokens, "positions": rows["positions"], "segments": segments}, labels


class DataLoader(Stateful):
    """As torchtitan's `BaseDataLoader` has it, for any number of ranks."""

    def __init__(self, folder: Path, *, dp_world_size: int, dp_rank: int, batch_size: int) -> None:
        ranks = lz.shard(num_shards=dp_world_size, index=dp_rank, remainder="drop")
        rows = packed(folder) | ranks | lz.batch(batch_size, drop_last=True, collate=lz.stack)
        self.pipeline = rows | lz.map(inputs_and_labels)
        self.loader = lz.torch.loader(self.pipeline, lz.threads(2))

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.loader)

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(lz.rebase(state_dict, self.pipeline))

    def close(self) -> None:
        self.loader.close()


class GPT(torch.nn.Module):
    """One block of attention within each document; some 5,000 parameters."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(128, width)
        self.positions = torch.nn.Embedding(LENGTH, width)
        self.heads = torch.nn.Linear(width, 3 * width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
        )

    def forward(self, input: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> Any:
        found = self.tokens(input) + self.positions(positions)
        is_seen = (segments[:, :, None] == segments[:, None, :]).tril()
        query, key, value = self.heads(found).chunk(3, -1)
        weights = (query @ key.mT).masked_fill(~is_seen, -torch.inf).softmax(-1)
        found = found + weights @ value
        return (found + self.mlp(found)) @ self.tokens.weight.T


def train(folder: Path, attempt: int, rank: int) -> None:
    """One rank, from the last checkpoint on; it is killed within a step."""
    ranks, killed_at = ATTEMPTS[attempt]
    meeting = f"file://{folder}/meeting{attempt}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(GPT())
    KEPT.append(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = DataLoader(folder, dp_world_size=ranks, dp_rank=rank, batch_size=BATCH)
    optimizer.zero_grad()
    sum(weight.sum() * 0 for weight in model.parameters()).backward()  # type: ignore[union-attr]
    optimizer.step()  # so that it has the tensors that are loaded
    if saved := sorted(folder.glob("saved-*/.metadata")):
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": data}
        dcp.load(kept, checkpoint_id=saved[-1].parent)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    for step, (inputs, labels) in enumerate(data, 1):
        logits = model(**inputs)
        loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        if step == killed_at:
            is_where_it_is_killed()
        optimizer.step()
        note = {"attempt": attempt, "step": step, "rank": rank, "loss": loss.item()}
        rows = [inputs["input"].tolist(), inputs["segments"].tolist()]
        with (folder / f"rank{rank}.jsonl").open("a") as file:
            file.write(json.dumps({**note, "rows": rows}) + "\n")
        if step % SAVES == 0:
            kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": data}
            dcp.save(kept, checkpoint_id=folder / f"saved-{attempt}-{step:03}")
    data.close()
    dist.destroy_process_group()


def main(folder: Path) -> None:
    try:
        for attempt, (ranks, killed_at) in enumerate(ATTEMPTS):
            started = [forked(partial(train, folder, attempt, rank)) for rank in range(ranks)]
            if killed_at:
                killed(started)
            else:
                assert codes(started) == [0] * ranks
    finally:
        end_all()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
