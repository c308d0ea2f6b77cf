"""Where stages run: lines of at most 100 characters, of stages as they were written."""

from __future__ import annotations

import re
from typing import Any

import lazyckpt as lz

NUMBERS = lz.source(range(10))
SHUFFLED = NUMBERS | lz.shuffle(seed=0)


def tokens(item: Any) -> Any:
    return item


def mixture() -> lz.Pipeline[Any]:
    webs = [
        lz.source(list(range(9)), name=f"web{number}")
        | lz.shuffle(seed=0)
        | lz.repeat()
        | lz.flat_map(iter)
        | lz.shuffle(1000, seed=number)
        for number in range(2)
    ]
    return lz.mix(webs, [1, 2], seed=0) | lz.map(tokens) | lz.batch(32, collate=tokens)


MIXTURE = """\
mix(
    (
        (
            source([0, 1, 2, ...], name='web0')
            | shuffle(seed=0)
            | repeat()
            | flat_map(iter)
            | shuffle(buffer_size=1000, seed=0)
        ),
        (
            source([0, 1, 2, ...], name='web1')
            | shuffle(seed=0)
            | repeat()
            | flat_map(iter)
            | shuffle(buffer_size=1000, seed=1)
        ),
    ),
    (1, 2),
    seed=0,
)"""


WORKERS = """\
  source([0, 1, 2, ...], name='web0')
  | shuffle(seed=0) | repeat()
  | flat_map(iter)                   in 4 threads, each input with its outputs; prefetch 6
  shuffle(buffer_size=1000, seed=0)  in one separate thread, in order; no prefetch
  source([0, 1, 2, ...], name='web1')
  | shuffle(seed=0) | repeat()
  | flat_map(iter)                   in 4 threads, each input with its outputs; prefetch 6
  shuffle(buffer_size=1000, seed=1)  in one separate thread, in order; no prefetch
mix(..., (1, 2), seed=0)             in one separate thread, in order; no prefetch
map(tokens)                          in 4 threads, item by item; prefetch 6
batch(32, collate=...)               in one separate thread, in order; no prefetch
collate=tokens                       in 4 threads, item by item; prefetch 9"""


def test_many_joined_pipelines_are_summed_up() -> None:
    several = [lz.source(range(n), name=f"s{n}") | lz.map(tokens) for n in range(1, 1001)]
    joined = lz.mix(several, [1] * 1000, seed=0)
    said = lz.explain(joined, lz.processes(2)).layout
    lines = re.sub(r"\n  \| ", " | ", said).split("\n")
    assert len(lines) == 8
    assert lines[5].startswith("  source(range(0, 6), name='s6') | map(tokens)")
    assert lines[5].endswith("  in 2 processes, by random access; prefetch 5")
    assert lines[6].split() == ["...", "and", "so", "on,", "for", "1000", "pipelines"]
    assert lines[7].endswith("in one separate process, in order; prefetch 4")


def test_a_mixture_is_laid_out_and_its_batches_are_shown_as_written() -> None:
    assert lz.explain(mixture(), lz.threads(4)).layout == WORKERS
    assert lz.explain(mixture()).layout == (
        MIXTURE + " | map(tokens) | batch(32, collate=tokens)"
        "  in the consumer's thread, on demand; no prefetch"
    )


def test_long_pipelines_go_on_in_the_next_line() -> None:
    long = SHUFFLED | lz.filter(bool) | lz.map(tokens) | lz.batch(2, collate=tokens)
    long = long | lz.repeat() | lz.sliding_window(3, stride=2) | lz.map(tokens)
    assert lz.explain(long).layout.splitlines() == [
        "source(range(0, 10)) | shuffle(seed=0)",
        "| filter(bool) | map(tokens)",
        "| batch(2, collate=tokens) | repeat()",
        "| sliding_window(3, stride=2) | map(tokens)"
        "  in the consumer's thread, on demand; no prefetch",
    ]


def test_a_long_stage_has_its_place_below() -> None:
    names = {name * 12: [1, 2] for name in "abcdef"}
    pipeline = lz.columns(**names) | lz.take_while(len) | lz.map(str)
    lines = lz.explain(pipeline, lz.threads(2)).layout.split("\n")
    assert lines[0].startswith("columns(aaaaaaaaaaaa=[1, 2], ")
    assert lines[1:] == [
        "                 in 2 threads, by random access; prefetch 4",
        "take_while(len)  in one separate thread, in order; no prefetch",
        "map(str)         in 2 threads, item by item; prefetch 7",
    ]
    assert lz.explain(lz.columns(**names), lz.threads()).layout.split("\n")[1] == (
        "  in one thread, by random access; prefetch 3"
    )


def test_stages_have_their_places_after_a_pipeline_whose_last_stage_is_in_two() -> None:
    batches = lz.source(range(9)) | lz.filter(bool) | lz.batch(3, collate=list)
    names = lz.source(["a", "b", "c"]) | lz.map(str.upper)
    found = lz.explain(lz.mix([batches, names], [1, 1], seed=0) | lz.map(str), lz.threads(2))
    order, one, many = "in order", "in 2 threads, each input", "in 2 threads, by random access"
    wheres = [order, one, one, order, many, many, "in 2 threads, item by item"]
    for stage, where in zip(found.stages, wheres, strict=True):
        assert where in stage.where, stage


def fits_in_100_columns(pipeline: lz.Pipeline[Any]) -> None:
    for executor in (None, lz.threads(), lz.threads(3), lz.processes(12)):
        text = lz.explain(pipeline, executor).layout
        for line in text.splitlines():
            line = line.strip()  # as deep as it is nested
            assert len(line) <= 100 or " | " not in line, text  # a stage alone may be long
        assert "collate=..." not in text or "collate=" in text.replace("collate=...", "")
