"""Item types flow through `|`: what mypy sees of a pipe, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

import lazyckpt as lz

PREAMBLE = """
import numpy as np
import lazyckpt as lz

words = lz.source(["a b", "c"])
numbers = lz.source([0, 1])
pairs = lz.source([("a", 1)])

def longest(best: int, word: str) -> tuple[int, bytes]: ...
def several(best: int, word: str) -> tuple[int, list[bytes]]: ...
def written(number: int) -> tuple[int, str] | None: ...
def noisy(rng: np.random.Generator, word: str) -> float: ...
def repeated(word: str, times: int) -> bytes: ...
"""

# Of every combinator, the types of pipes that it ends.
COMBINATORS = {
    "source": {
        "words": "Pipeline[str]",
        "lz.source(range(3))": "Pipeline[int]",
    },
    "columns": {"lz.columns(x=[1], y=np.ones(1))": "Pipeline[dict[str, Any]]"},
    "unfold": {"lz.unfold(written, 0)": "Pipeline[str]"},
    "count": {"lz.count()": "Pipeline[int]"},
    "random_floats": {"lz.random_floats(seed=0)": "Pipeline[float]"},
    "random_indices": {
        "lz.random_indices([1, 0.5], seed=0)": "Pipeline[int]",
        "lz.random_indices(np.ones(2), seed=0)": "Pipeline[int]",
    },
    "once": {'lz.once("a")': "Pipeline[str]"},
    "map": {
        "words | lz.map(len)": "Pipeline[int]",
        "words | lz.map(lambda word: [word])": "Pipeline[list[str]]",
        "lz.map(str.upper) | lz.map(len)": "Stage[str, int]",
    },
    "starmap": {"pairs | lz.starmap(repeated)": "Pipeline[bytes]"},
    "tap": {"words | lz.tap(print)": "Pipeline[str]"},
    "flat_map": {"words | lz.flat_map(str.split)": "Pipeline[str]"},
    "unbatch": {"words | lz.batch(2) | lz.unbatch()": "Pipeline[Any]"},
    "scan": {"words | lz.scan(longest, 0)": "Pipeline[bytes]"},
    "flat_scan": {"words | lz.flat_scan(several, 0)": "Pipeline[bytes]"},
    "enumerate": {"words | lz.enumerate(1)": "Pipeline[tuple[int, Any]]"},
    "random_map": {"words | lz.random_map(noisy, seed=0)": "Pipeline[float]"},
    "cache": {"words | lz.cache(3)": "Pipeline[str]"},
    "filter": {"words | lz.filter(bool)": "Pipeline[str]"},
    "take": {
        "[2, 3] | lz.take(2)": "Pipeline[int]",
        "lz.take(2) | lz.repeat() | lz.map(len)": "Stage[Sized, int]",
    },
    "skip": {"words | lz.skip(1)": "Pipeline[str]"},
    "without": {
        "words | lz.without([(1, 3), range(4, 6)])": "Pipeline[str]",
        "words | lz.without([(lz.init(words), lz.state_at(words, 2))])": "Pipeline[str]",
    },
    "take_while": {"words | lz.take_while(str.isupper)": "Pipeline[str]"},
    "drop_while": {"words | lz.drop_while(str.isupper)": "Pipeline[str]"},
    "gather": {
        "words | lz.gather([1, 0])": "Pipeline[str]",
        "words | lz.gather(np.arange(2)) | lz.gather(range(2))": "Pipeline[str]",
    },
    "batch": {
        "words | lz.batch(2)": "Pipeline[list[Any]]",
        'words | lz.batch(2, collate="".join)': "Pipeline[str]",
        "words | lz.batch(2, collate=lz.stack)": "Pipeline[Any]",
        "lz.batch(2, drop_last=True) | lz.map(len)": "Stage[Any, int]",
        "np.arange(3) | lz.batch(2)": "Pipeline[list[Any]]",
    },
    "sliding_window": {
        "words | lz.sliding_window(2)": "Pipeline[tuple[Any, ...]]",
        "lz.sliding_window(2) | lz.map(len)": "Stage[Any, int]",
    },
    "token_batch": {"words | lz.token_batch(9, key=len)": "Pipeline[list[str]]"},
    "shard_batch": {
        "words | lz.batch(2) | lz.shard_batch(num_shards=2, index=0, key=len)": (
            "Pipeline[list[Any]]"
        )
    },
    "dedupe": {"words | lz.dedupe(len, window=9)": "Pipeline[str]"},
    "dedupe_bloom": {
        "words | lz.dedupe_bloom(str, 'seen', capacity=9, false_positive_rate=0.1)": (
            "Pipeline[str]"
        )
    },
    "limit": {"words | lz.limit(9, key=len)": "Pipeline[str]"},
    "hash_range": {"words | lz.hash_range(0, 1, seed=0)": "Pipeline[str]"},
    "sample": {"words | lz.sample([1], seed=0)": "Pipeline[str]"},
    "balanced": {"words | lz.balanced([1], seed=0)": "Pipeline[str]"},
    "oversample": {"words | lz.oversample([1], seed=0)": "Pipeline[str]"},
    "group_by": {"words | lz.group_by(len)": "Pipeline[tuple[int, list[str]]]"},
    "split_batch": {"words | lz.batch(2) | lz.split_batch(2)": "Pipeline[list[Any]]"},
    "bucket_batch": {
        "words | lz.bucket_batch(2, key=len, window_size=9, seed=0)": "Pipeline[list[str]]"
    },
    "bucket_by_boundaries": {
        "words | lz.bucket_by_boundaries([2], 2, length=len)": "Pipeline[list[str]]"
    },
    "concat_then_split": {"[[1]] | lz.concat_then_split(2) | lz.map(list)": "Pipeline[list[str]]"},
    "pack_best_fit": {
        "[[1]] | lz.pack_best_fit(2, num_bins=1) | lz.map(list)": "Pipeline[list[str]]"
    },
    "pack_by_plan": {
        "[[1]] | lz.pack_by_plan(lz.plan_packing([1], 2, seed=0)) | lz.map(list)": (
            "Pipeline[list[str]]"
        )
    },
    "pack_first_fit": {
        "[[1]] | lz.pack_first_fit(2, num_bins=1) | lz.map(list)": "Pipeline[list[str]]"
    },
    "shuffle": {
        "words | lz.shuffle(seed=0) | lz.shuffle(8, seed=0)": "Pipeline[str]",
        "lz.map(str.upper) | lz.shuffle(seed=0) | lz.repeat()": "Stage[str, str]",
    },
    "block_shuffle": {"words | lz.block_shuffle(8, seed=0)": "Pipeline[str]"},
    "local_shuffle": {"words | lz.local_shuffle(8, seed=0, block_size=9)": "Pipeline[str]"},
    "repeat": {"words | lz.repeat(2)": "Pipeline[str]"},
    "zip": {"lz.zip(words, numbers)": "Pipeline[tuple[Any, ...]]"},
    "concat": {
        "lz.concat(words, words)": "Pipeline[str]",
        "lz.concat(words, numbers)": "Pipeline[object]",
    },
    "case": {"lz.case(numbers, words, words)": "Pipeline[str]"},
    "switch": {"lz.switch(pairs, words, words)": "Pipeline[str]"},
    "interleave": {"lz.interleave(words, words)": "Pipeline[str]"},
    "interleave_map": {"words | lz.interleave_map(str.split, cycle_length=2)": "Pipeline[str]"},
    "mix": {
        "lz.mix([words, words], [2, 0.5], seed=0)": "Pipeline[str]",
        "lz.mix([words], lambda n: [n], seed=0)": "Pipeline[str]",
    },
    "multiplex": {"lz.multiplex(numbers, [words, words])": "Pipeline[str]"},
    "lanes": {"lz.lanes([words], num_shards=1, index=0)": "Pipeline[str]"},
    "shard": {"words | lz.shard(num_shards=2, index=0)": "Pipeline[str]"},
}

OTHERS = {
    "words[0]": "str",
    "words[1:]": "Pipeline[str]",
    "next(iter(words))": "str",
    "lz.run(words)": "Run[str]",
    "next(lz.run(words))": "str",
    "next(lz.run(words).epoch(2))": "str",
    "next(lz.run(words).with_state())": "tuple[str, State]",
    "lz.run(words).state": "State",
    "lz.run(words).state_dict()": "dict[str, Any]",
    "lz.init(words)": "State",
    "lz.step(words, lz.init(words))": "tuple[State, Any]",
    "lz.state_at(words, 1)": "State",
    "lz.advance(words, lz.init(words), 1)": "State",
    "lz.reshard([lz.init(words)], words)": "list[State]",
    "lz.resume_cost(words, lz.init(words))": "ResumeCost",
    "lz.resume_cost(words, lz.init(words)).stages[0]": "StageCost",
    "lz.trace(words, 0)": "list[Origin]",
    "lz.trace(words, lz.init(words))": "list[Origin]",
    "lz.trace(words, lz.init(words), lz.init(words))": "list[list[Origin]]",
    "lz.replay(words, lz.init(words))": "Any",
    "lz.diff(lz.init(words), lz.init(words))": "Difference",
    "lz.diff(lz.init(words), lz.init(words)).moves[0]": "Move",
    "lz.rebase(lz.init(words), words)": "State",
    'lz.load("state.json")': "State",
    "lz.torch.loader(words)": "Loader[str]",
    "lz.torch.dataset(words)": "Dataset[str]",
    "lz.torch.state({})": "State",
    "lz.mix_counts(words, lz.init(words))": "tuple[int, ...]",
}

ILL_TYPED = """
words | lz.map(abs)
words | lz.map(str.upper) | lz.map(abs)
lz.map(str.upper) | lz.map(abs)
words | lz.flat_map(len)
words | lz.filter(abs)
words | lz.take_while(abs)
numbers | lz.drop_while(str.isupper)
numbers | lz.scan(longest, 0)
words | lz.scan(longest, "0")
numbers | lz.flat_scan(several, 0)
numbers | lz.random_map(noisy, seed=0)
words | lz.random_map(noisy)
lz.unfold(written, "0")
lz.random_indices("ab", seed=0)
lz.columns(x=words)
words | lz.gather("0")
words | lz.batch("2")
words | lz.batch(2) | lz.map(str.upper)
numbers | lz.batch(2, collate="".join)
words | lz.sliding_window(2) | lz.map(str.upper)
words | lz.group_by(abs)
words | lz.group_by(len) | lz.map(len) | lz.map(len)
numbers | lz.bucket_batch(2, key=len, window_size=9, seed=0)
numbers | lz.bucket_by_boundaries([2], 2, length=len)
words | lz.interleave_map(len, cycle_length=2)
words | lz.shuffle(8)
words | words
words | len
lz.shard(2, 0)
lz.zip([1], [2])
lz.case(words, words)
lz.multiplex(words, [words])
lz.mix(words, [1], seed=0)
lz.run([1])
lz.save(words, "state.json")
lz.run(lz.take(2))
list(lz.take(2))
"""


def checked(code: str, folder: Path) -> list[tuple[int, str]]:
    """mypy's messages about the code, with their lines; names without their modules."""
    file = folder / "sample.py"
    file.write_text(PREAMBLE + code)
    cache = ["--cache-dir", str(folder / "cache"), "--disable-error-code", "empty-body"]
    out, err, _ = api.run(["--strict", "--config-file", "", *cache, str(file)])
    assert not err, err
    found = re.findall(r"sample\.py:(\d+): (.*)", out)
    start = PREAMBLE.count("\n")
    return [(int(n) - start, re.sub(r"\b[a-z_]\w*\.(?=\w)", "", text)) for n, text in found]


def test_types_flow_through_a_pipe(tmp_path: Path) -> None:
    expected = OTHERS | {k: v for each in COMBINATORS.values() for k, v in each.items()}
    code = "".join(f"reveal_type({expression})\n" for expression in expected)
    found = checked(code, tmp_path)
    types = [re.fullmatch('note: Revealed type is "(.*)"', text) for _, text in found]
    assert all(types), [text for _, text in found if "error" in text]
    assert dict(zip(expected, [t[1] for t in types if t], strict=True)) == expected


def test_an_ill_typed_pipe_is_a_type_error(tmp_path: Path) -> None:
    wrong = {line for line, text in checked(ILL_TYPED[1:], tmp_path) if "error" in text}
    lines = dict(enumerate(ILL_TYPED[1:].splitlines(), 1))
    assert [lines[n] for n in lines if n not in wrong] == []


def test_every_combinator_has_its_types_tested() -> None:
    assert set(COMBINATORS) == set(lz.registry)
    assert all(f"lz.{k}" in e for k, v in COMBINATORS.items() for e in v if k != "source")
