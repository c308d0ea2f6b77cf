"""A training loop, whose model waits for batches or does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import torch
from contestant import Figures, Way
from data import ROW, VOCABULARY


def trained(n: int, batches: Callable[[], Iterable[Any]]) -> Way:
    """n steps over batches of tokens: the seconds, and the share of them spent waiting."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(VOCABULARY, 64),
        torch.nn.Linear(64, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, VOCABULARY),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(tokens: torch.Tensor) -> None:
        tokens = tokens.long()
        logits = model(tokens[:, : ROW - 1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def train() -> Figures:
        stream = iter(batches())
        step(torch.as_tensor(next(stream)))  # for which workers start
        begun, waited = perf_counter(), 0.0
        for _ in range(n):
            asked = perf_counter()
            batch = next(stream)
            waited += perf_counter() - asked
            step(torch.as_tensor(batch))
        took = perf_counter() - begun
        return {"waited": waited / took, "seconds": took}

    return train
