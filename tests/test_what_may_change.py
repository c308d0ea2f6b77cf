"""The page on what may change between stop and resume: each row of its tables is tried."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lazyckpt as lz
from tests.pages import NOTEBOOKS

PAGE = NOTEBOOKS / "how-to/what-may-change.md"
EPOCH, MIDDLE, MOST = 60, 3, 100  # items of data, items before a stop, items looked at


class Row(NamedTuple):
    verdict: str  # the heading of its table
    change: str
    before: str
    after: str


def rows() -> Iterator[Row]:
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        verdict = section.partition("\n")[0]
        for line in re.findall(r"^\| (?!change|---).*", section, re.MULTILINE):
            cells = [cell.replace("\\|", "|").strip(" `") for cell in split(line)]
            yield Row(verdict, *cells)


def split(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line.strip())[1:-1]


def of(verdict: str) -> Any:
    found = [row for row in rows() if row.verdict == verdict]
    return pytest.mark.parametrize("row", found, ids=[row.change for row in found])


def double(n: int) -> int:
    return 2 * n


def triple(n: int) -> int:
    return 3 * n


def even(n: int) -> bool:
    return n % 2 == 0


def odd(n: int) -> bool:
    return n % 2 == 1


def large(n: int) -> bool:
    return n > 10


def twice(n: int) -> list[int]:
    return [n] * 2


def thrice(n: int) -> list[int]:
    return [n] * 3


def tokens(n: int) -> list[int]:
    return [n + 1] * (1 + n % 3)


def jitter(rng: Any, n: int) -> tuple[int, float]:
    return n, rng.random()


def add(total: int, n: int) -> tuple[int, int]:
    return total + n, total


def named(name: str, start: int) -> lz.Pipeline[int]:
    return lz.source(range(start, start + EPOCH), name=name)


NAMES: dict[str, Any] = {
    **{name: getattr(lz, name) for name in lz.registry},
    **{"io": lz.io, "inline": lz.inline, "threads": lz.threads, "processes": lz.processes},
    **{each.__name__: each for each in (double, triple, even, odd, large, twice, thrice)},
    **{"tokens": tokens, "jitter": jitter, "add": add},
    **{"data": [*range(60)], "longer": [*range(80)], "others": [*range(100, 160)]},
    **{"web": named("web", 0), "code": named("code", 100), "books": named("books", 200)},
}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the examples use, files among them."""
    monkeypatch.setenv("LAZYCKPT_CACHE", str(tmp_path / "cache"))
    first, second, third = [*range(10, 40)], [*range(40, 70)], [*range(70, 90)]
    edited = [99, *second[1:]]
    return NAMES | {
        "here": written(tmp_path / "here", first, second),
        "copied": written(tmp_path / "copied", first, second),
        "edited": written(tmp_path / "edited", first, edited),
        "more": written(tmp_path / "more", first, second, third),
    }


def written(folder: Path, *files: list[int]) -> str:
    folder.mkdir()
    for number, lines in enumerate(files):
        (folder / f"{number}.jsonl").write_text("".join(f"{json.dumps(n)}\n" for n in lines))
    return f"{folder}/*.jsonl"


def built(row: Row, names: dict[str, Any]) -> tuple[Any, Any]:
    """Both pipelines of a row, or one and two executors."""
    return eval(row.before, dict(names)), eval(row.after, dict(names))


def rest(pipeline: Any, state: Any) -> list[Any]:
    return list(islice(lz.run(pipeline, state), MOST))


def changed(old: Any, new: Any, stop: int) -> list[Any]:
    run = lz.run(old)
    list(islice(run, stop))
    run.change(new)
    return list(islice(run, MOST))


def texts(items: list[Any]) -> list[str]:
    """Items that can be compared, arrays among them."""
    return [str(item) for item in items]


def flat(items: list[Any]) -> Counter[Any]:
    """The numbers in items, batches and packed rows."""
    found: Counter[Any] = Counter()
    for item in items:
        if isinstance(item, dict):
            found += flat(item["tokens"].tolist())
        elif isinstance(item, (list, tuple)):
            found += flat(list(item))
        elif item != 0 or not isinstance(item, int):
            found[item] += 1
    return found


def check_kept(old: Any, new: Any, stop: int, after: list[Any]) -> None:
    """If both pipelines have the same items, the items before and after the change are these."""
    ends = [list(islice(lz.run(each), 1000)) for each in (old, new)]
    if len(ends[0]) < 1000 and flat(ends[0]) == flat(ends[1]):
        assert flat(ends[0][:stop] + after) == flat(ends[0])


def refused(old: Any, new: Any, stop: int) -> None:
    """By a run, by `rebase` and by `change`."""
    state = lz.state_at(old, stop)
    for act in (lambda: lz.run(new, state), lambda: lz.rebase(state, new)):
        with pytest.raises(lz.StateMismatch):
            act()
    with pytest.raises(lz.StateMismatch):
        changed(old, new, stop)


@of("It just works")
def test_it_just_works(row: Row, names: dict[str, Any]) -> None:
    old, new = built(row, names)
    if isinstance(old, lz.Executor):
        pipeline = lz.source(names["data"]) | lz.shuffle(seed=0) | lz.map(double) | lz.batch(4)
        with lz.run(pipeline, executor=old) as run:
            list(islice(run, MIDDLE))
            saved = run.state.to_json()
        with lz.run(pipeline, saved, executor=new) as run:
            assert list(run) == list(pipeline)[MIDDLE:]
        return
    found = rest(new, lz.state_at(old, MIDDLE).to_json())
    assert found == changed(old, new, MIDDLE) != []
    check_kept(old, new, MIDDLE, found)


@of("It works with `rebase`")
def test_it_works_with_rebase(row: Row, names: dict[str, Any]) -> None:
    old, new = built(row, names)
    state = lz.state_at(old, MIDDLE).to_json()
    with pytest.raises(lz.StateMismatch, match=r"lz\.rebase\(state, pipeline\) to carry it over"):
        lz.run(new, state)
    found = rest(new, lz.rebase(state, new))
    assert texts(found) == texts(changed(old, new, MIDDLE)) != []
    check_kept(old, new, MIDDLE, found)


@of("It works between two epochs")
def test_it_works_between_two_epochs(row: Row, names: dict[str, Any]) -> None:
    old, new = built(row, names)
    refused(old, new, MIDDLE)
    state = lz.state_at(old, EPOCH)
    found = rest(new, lz.rebase(state, new))
    assert found == changed(old, new, EPOCH)
    assert found[:EPOCH] != list(islice(lz.run(old, state), EPOCH))


@of("It works with `reshard`")
def test_it_works_with_reshard(row: Row, names: dict[str, Any]) -> None:
    old, new = built(row, names)
    with pytest.raises(lz.StateMismatch):
        lz.run(new, lz.state_at(old, MIDDLE))
    states = lz.reshard([lz.state_at(old, MIDDLE)], new)
    second = row.after.replace("index=0", "index=1")
    ranks = [new, eval(second, dict(names))]
    after = [item for rank, state in zip(ranks, states, strict=True) for item in rest(rank, state)]
    assert flat(list(islice(lz.run(old), MIDDLE)) + after) == flat(list(old))


@of("It is refused")
def test_it_is_refused(row: Row, names: dict[str, Any]) -> None:
    refused(*built(row, names), MIDDLE)


@of("A saved state can't detect it, `run.change` refuses it")
def test_a_state_cannot_detect_it(row: Row, names: dict[str, Any]) -> None:
    old, new = built(row, names)
    assert rest(new, lz.state_at(old, MIDDLE).to_json()) != rest(old, lz.state_at(old, MIDDLE))
    with pytest.raises(lz.StateMismatch):
        changed(old, new, MIDDLE)


@of("It can't be detected")
def test_nobody_can_detect_it(row: Row, names: dict[str, Any]) -> None:
    old, new = built(row, names)
    found = rest(new, lz.state_at(old, MIDDLE).to_json())
    assert found == changed(old, new, MIDDLE) != rest(old, lz.state_at(old, MIDDLE))


def test_every_row_is_tried() -> None:
    tried = {
        mark.args[1][0].verdict
        for function in list(globals().values())
        for mark in getattr(function, "pytestmark", [])
        if mark.args[0] == "row"
    }
    found = list(rows())
    assert {row.verdict for row in found} == tried
    assert len(found) == len({row.change for row in found}) > 40
