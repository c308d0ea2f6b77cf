"""WebDataset: a pipeline of functions over iterators. It has no states."""

from __future__ import annotations

import random
from functools import partial
from itertools import islice
from time import perf_counter

import webdataset as wds
from contestant import Figures, Way
from data import BLOCK, WEIGHTS, add, by_length, keep, lines
from files import BUFFER, corpus, figures
from harness import fresh, spent


def w1(n: int) -> Way:
    data = list(range(n))
    pipeline = wds.DataPipeline(
        lambda: iter(data), wds.map(add), wds.select(keep), wds.batched(32, collation_fn=None)
    )
    return lambda: spent(pipeline)


def w3(n: int) -> Way:
    shuffled = wds.shuffle(BLOCK, initial=BLOCK, seed=0)
    grouped = partial(by_length, rng=random.Random(0))
    pipeline = wds.DataPipeline(partial(lines, n), shuffled, grouped)
    return lambda: spent(pipeline)


def w7(n: int) -> Way:
    first = "next(iter(wds.DataPipeline(lambda: iter(range(10)), wds.map(abs))))"
    return fresh("import webdataset as wds", first)


def w9(n: int) -> Way:
    def mixed() -> Figures:
        begun = perf_counter()
        spent(islice(wds.RandomMix([range(n) for _ in WEIGHTS], probs=WEIGHTS), n))
        return {"seconds": perf_counter() - begun}

    return mixed


def w11tar(n: int) -> Way:
    names = [str(path) for path in corpus("tar", n)]

    def samples() -> wds.DataPipeline:
        return wds.WebDataset(names, shardshuffle=False, empty_check=False)

    return figures(order=samples, local=lambda: samples().shuffle(BUFFER))
