"""Laws of readers of all formats: each law takes one format of the table."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from gzip import compress as gzip
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings

import lazyckpt as lz
from lazyckpt.io import content, decompress, storage
from lazyckpt.io.storage import LocalStorage
from lazyckpt.testing import equal
from tests.io.cases import check_good_rows, check_reader, folder, in_fork, is_killed
from tests.io.contents import Contents
from tests.io.table import COUNT, FORMATS, Format

FEW = settings(max_examples=max(2, settings.default.max_examples // 15))

Law = Callable[[Format], None]
LAWS: dict[Law, Callable[[Format], bool]] = {}  # and for which formats each is one
STREAMS = {"read_text": lz.io.iter_text, "read_jsonl": lz.io.iter_jsonl}
_numbers = count()


def law(holds_for: Callable[[Format], bool]) -> Callable[[Law], Law]:
    def listed(found: Law) -> Law:
        LAWS[found] = holds_for
        return found

    return listed


def cases(formats: Mapping[str, Format]) -> list[Any]:
    """The laws of each format, for `pytest.mark.parametrize`."""
    return [
        pytest.param(each, form, id=f"{each.__name__}-{name}")
        for name, form in formats.items()
        for each, holds_for in LAWS.items()
        if holds_for(form)
    ]


def always(form: Format) -> bool:
    return True


def has_index(form: Format) -> bool:
    return form.has("index_dir")


def put(found: Contents) -> str:
    """A new folder with such files."""
    place = folder()
    for name, file in found.files.items():
        Path(place, name).parent.mkdir(exist_ok=True)
        Path(place, name).write_bytes(file)
    return str(place)


def in_memory(found: Contents) -> str:
    """A new folder of fsspec's with such files."""
    place = f"/laws/{next(_numbers)}"
    system = fsspec.filesystem("memory")
    system.pipe({f"{place}/{name}": file for name, file in found.files.items()})
    return f"memory:/{place}"


def opened(form: Format, place: str | None = None, **options: Any) -> lz.io.Rows[Any]:
    """The rows of the example, or of files in a folder, with an index that is built again."""
    place = put(form.example) if place is None else place
    return form.read(f"{place}/{form.pattern}", **{"index_dir": folder()} | options)


def rows_of(
    form: Format, found: Contents, put: Callable[[Contents], str] = put, **options: Any
) -> lz.io.Rows[Any]:
    """The rows of files in a new folder."""
    is_usual = any(fnmatch(name, form.pattern) for name in found.files)
    pattern = form.pattern if is_usual else "**"
    return form.read(f"{put(found)}/{pattern}", index_dir=folder(), **found.given | options)


@law(always)
def rows_are_what_was_written(form: Format) -> None:
    """In every way to reach them."""
    for found in () if form.compression else (form.example, *form.odd):
        check_reader(rows_of(form, found), found.rows)

    @FEW
    @given(drawn=form.random, options=form.options)
    def holds(drawn: Contents, options: dict[str, Any]) -> None:
        check_reader(rows_of(form, drawn, **options), drawn.rows)

    holds()


def rows_are_the_same_elsewhere(form: Format, put: Callable[[Contents], str]) -> None:
    """On a storage that isn't this machine's."""

    def check(found: Contents) -> None:
        rows, middle = rows_of(form, found, put), len(found.rows) // 2
        assert equal(rows[::-1], found.rows[::-1])
        state = lz.state_at(lz.source(rows), middle)
        assert equal(list(lz.run(lz.source(rows), state)), found.rows[middle:])
        assert not found.rows or equal(rows[middle], found.rows[middle])

    for found in (form.example, *form.odd):
        check(found)
    settings(FEW, max_examples=2)(given(form.random)(check))()


@law(lambda form: not form.is_local)
def rows_are_the_same_in_memory(form: Format) -> None:
    rows_are_the_same_elsewhere(form, in_memory)


@law(lambda form: form.has("compression"))
def rows_are_the_same_whatever_is_read_at_once(form: Format) -> None:
    for size in (1, 2, 3, 7, 12, 29):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(content, "CHUNK", size)
            patch.setattr(decompress, "RAW", size)
            patch.setattr(decompress, "MADE", size)
            for found in form.odd:
                rows = rows_of(form, found)
                assert equal(list(rows), found.rows)
                assert equal([rows[n] for n in range(len(rows))], found.rows)
                if stream := STREAMS.get(form.reader):
                    assert equal(
                        [row for file in rows.files for row in stream(file, **found.given)],
                        found.rows,
                    )


@law(has_index)
def workers_build_the_index(form: Format) -> None:
    with_workers = [lz.threads(2), *[lz.processes(2)] * (form.compression in ("", "zstd"))]
    for executor in with_workers:
        assert equal(opened(form, executor=executor)[:], form.example.rows)


def workers_give_the_rows(formats: Mapping[str, Format], executor: lz.Executor) -> None:
    """All formats in one run: some shuffled, and all by the block if they have blocks.

    Workers import nothing of these tests.
    """
    rows = [opened(form) for form in formats.values()]
    orders = [each | lz.shuffle(seed=0) | lz.take(5) for each in rows]
    blocks = [each for each in rows if getattr(each, "block_starts", None) is not None]
    orders += [each | lz.local_shuffle(2, seed=0) for each in blocks]
    pipeline = lz.concat(*(order | lz.map(copy) for order in orders))
    expected = list(pipeline)
    for start in (0, len(expected) // 2):
        with lz.run(pipeline, lz.state_at(pipeline, start), executor=executor) as run:
            assert equal(list(run), expected[start:])


@law(always)
def a_fork_reads(form: Format) -> None:
    rows, expected = opened(form), form.example.rows
    assert equal(rows[0], expected[0])
    assert in_fork(lambda: equal(rows[:], expected)) == 1
    assert equal(rows[:], expected)


@law(always)
def ranks_have_one_state(form: Format) -> None:
    rows = opened(form) | lz.shuffle(seed=0)
    ranks = [rows | lz.shard(num_shards=3, index=rank) for rank in range(3)]
    states = {lz.state_at(rank, 5).to_json() for rank in ranks}
    (state,) = states
    later = [lz.run(rank, lz.State.from_json(state)) for rank in ranks]
    assert equal([row for some in zip(*later, strict=False) for row in some], list(rows)[15:])


@law(lambda form: len(form.example.files) > 1)
def a_state_follows_files_that_are_appended(form: Format) -> None:
    rows, expected = opened(form), form.example.rows
    few = rows.first_files(1)
    assert few is not None
    assert equal(few[:], expected[: len(few)])
    whole = len(rows.files)
    assert (rows.first_files(whole), rows.first_files(whole + 1)) == (rows, None)
    state = lz.rebase(lz.state_at(lz.source(few), len(few) - 1), lz.source(rows))
    assert equal(list(lz.run(lz.source(rows), state)), expected[len(few) - 1 :])


@law(always)
def a_state_is_that_of_the_files_wherever_they_are(form: Format) -> None:
    """And whenever they were written."""
    place, moved = put(form.example), f"{folder()}/moved"
    first = opened(form, place) | lz.shuffle(seed=0)
    state, expected = lz.state_at(first, 5), list(first)[5:]
    shutil.copytree(place, moved)
    places = [moved, put(form.example), *[in_memory(form.example)] * (not form.is_local), place]
    for path in Path(place).iterdir():
        os.utime(path, ns=(1, 1))
    for there in places:
        copy = opened(form, there) | lz.shuffle(seed=0)
        assert lz.state_at(copy, 5) == state
        assert equal(list(lz.run(copy, state)), expected)


CHANGES: dict[str, Callable[[str], object]] = {
    "longer": lambda path: Path(path).write_bytes(Path(path).read_bytes() * 2),
    "cut": lambda path: os.truncate(path, os.path.getsize(path) // 2),
    "touched": lambda path: os.utime(path, ns=(1, 1)),
    "replaced": lambda path: os.replace(_copy(path), path),
    "removed": os.remove,
    "a folder": lambda path: (os.remove(path), os.mkdir(path)),
}


def _copy(path: str) -> str:
    Path(f"{path}.new").write_bytes(Path(path).read_bytes() * 2)
    return f"{path}.new"


@law(always)
def a_file_that_changes_is_named(form: Format) -> None:
    """While it is read, or between a stop and a resume; whether rows or columns are asked for."""
    stages = lz.take(COUNT), lz.batch(1), lz.batch(1, collate=lz.stack)
    for change, alter in CHANGES.items():
        place = put(form.example)
        rows, other = opened(form, place), opened(form, place)
        states = [lz.state_at(other | stage, COUNT - 1) for stage in stages]
        assert equal(rows[0], form.example.rows[0])
        path = rows.files[len(rows.files) - 1].path
        alter(path)
        for stage, state in zip(stages, states, strict=True):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(storage, "local_storage", LocalStorage())  # which has nothing open
                run = lz.run(rows | stage, state)
                message = f"^{re.escape(path)} (changed|was removed) since"
                if form.compression and stage is stages[0]:  # decompressed pieces may be kept
                    with suppress(lz.SourceChanged):
                        assert equal(list(run), form.example.rows[-1:])
                elif not form.compression:
                    with pytest.raises(lz.SourceChanged, match=message):
                        list(run)
                    assert run.state == state
        if change not in ("touched", "removed"):
            with pytest.raises(lz.PipelineError):
                lz.run(opened(form, place) | stages[0], states[0])


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Content of which some bytes are others, gone or new; more often near the end."""
    behind = chance.randrange(min(len(content), chance.choice([400, 1 << 30])) or 1)
    at = max(0, len(content) - 1 - behind)
    new = chance.randbytes(chance.randrange(1, 30))
    flipped = (content[at : at + 1] or b"x")[0] ^ 1 << chance.randrange(8)
    return content[:at] + chance.choice([
        b"",
        bytes([flipped]) + content[at + 1 :],
        new[:1] + content[at + 1 :],
        b"\xff" + content[at + 1 :],
        content[at + len(new) :],
        new + content[at:],
        bytes(len(new)) + content[at + len(new) :],
    ])  # fmt: skip


def attempt(act: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """The result, or the error that the library has raised."""
    try:
        return act(), None
    except (lz.PipelineError, FileNotFoundError) as error:
        return None, error


def damage_is_named(form: Format, files: Mapping[str, bytes | None]) -> None:
    """By errors at opening, or of the records that can't be read; of None there is a folder."""
    place = put(Contents({name: file or b"" for name, file in files.items()}, []))
    for name in files:
        if files[name] is None:
            os.remove(f"{place}/{name}")
            os.mkdir(f"{place}/{name}")
    rows, error = attempt(lambda: opened(form, place, index_dir=place))
    if rows is None:
        assert place in str(error), files
        return
    good: list[Any] = []
    for number in range(len(rows)):
        row, error = attempt(partial(rows.__getitem__, number))
        if error is None:
            good.append(row)
            assert not form.is_checked or row in form.example.rows, files
            continue
        assert place in str(error), files
        if isinstance(error, lz.io.RecordError) and not form.is_foreign and not form.compression:
            message = rf"record \d+ at byte |{re.escape(place)}/\d+\.csv: "  # of its header
            assert re.match(message, str(error)), files
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert equal([*run], good), files
        assert len(good) + run.skipped == len(rows)
        assert lz.State.from_json(run.state.to_json()) == run.state


# Contents that are none of most formats.
OTHERS = [b"", b"\0", bytes(600), b"\x80" * 600, b"PK\3\4" + bytes(99), b"\n" * 9, b"\xff\xfe"]
OTHERS += [next(iter(form.example.files.values())) for form in FORMATS.values()]
DAMAGES = max(30, settings.default.max_examples // 2)  # of a file, of compressed ones a third


@law(always)
def damage_is_an_error_that_names_the_file(form: Format) -> None:
    whole, chance = form.example.files, random.Random(form.pattern)
    damages = DAMAGES // 3 if form.compression else DAMAGES
    damage_is_named(form, whole)
    for name in [*whole][-2:]:
        file = whole[name]
        cut = [file[: int(len(file) * part)] for part in (0, 0.01, 0.3, 0.6, 0.9)]
        other = [bytes(len(file)), gzip(file), b'{"shards": []}', file + b"\0"]
        for _ in range(damages):
            other.append(damaged(chance.choice([file, file, other[-1]]), chance))
        for spoilt in [*cut, *other[: 4 * form.is_foreign or None]]:
            damage_is_named(form, {**whole, name: spoilt})
    for found in () if form.is_foreign else chance.sample(OTHERS, 12):
        damage_is_named(replace(form, is_checked=False), {**whole, next(iter(whole)): found})


@law(lambda form: "*" not in form.pattern)
def a_file_that_is_not_there_is_named(form: Format) -> None:
    files = form.example.files
    for each in files:
        damage_is_named(form, {**files, each: None})
        damage_is_named(form, {other: files[other] for other in files if other != each})


@law(lambda form: form.spoil is not None)
def a_record_that_is_damaged_is_left_out_once(form: Format) -> None:
    """With those that are decoded with it; errors name it, and states stay good."""
    place, expected = put(form.example), form.example.rows
    whole = opened(form, place)
    path, _, start, stop = whole.locate(18)
    file = bytearray(Path(path).read_bytes())
    assert form.spoil is not None
    file[start:stop] = form.spoil(bytes(file[start:stop]))
    Path(path).write_bytes(file)
    found = [whole.locate(n) for n in range(len(whole))]
    bad = [n for n, at in enumerate(found) if (at.path, at.start, at.stop) == (path, start, stop)]
    rows = opened(form, place)
    check_good_rows(rows, [None if n in bad else row for n, row in enumerate(expected)])
    message = f"record {found[bad[0]].record} at byte {start:,} of {re.escape(path)}: "
    batches = rows | lz.batch(len(rows), collate=lz.stack)
    for read in (lambda: rows[18], lambda: [*rows], lambda: rows[::-1], lambda: batches[0]):
        with pytest.raises(lz.io.RecordError, match=message):
            read()
    good = [row for n, row in enumerate(expected) if n not in bad]
    for pipeline in (lz.source(rows), lz.source(rows) | lz.map(copy)):
        with lz.run(pipeline, on_error="skip") as run:
            states = [state for _, state in run.with_state()]
        for number, state in enumerate(states, 1):
            again = lz.State.from_json(state.to_json())
            with lz.run(pipeline, again, on_error="skip") as rest:
                assert equal(list(rest), good[number:])
            assert rest.skipped == len(bad)


@law(lambda form: form.has("max_record_bytes"))
def a_record_that_is_too_large_is_left_out(form: Format) -> None:
    place = put(form.example)
    whole = opened(form, place)
    sizes = [at.stop - at.start for at in map(whole.locate, range(len(whole)))]
    most = sorted(sizes)[len(sizes) // 2]
    rows = opened(form, place, max_record_bytes=most)
    pairs = zip(sizes, form.example.rows, strict=True)
    check_good_rows(rows, [row if size <= most else None for size, row in pairs])
    first = next(size for size in sizes if size > most)
    message = rf"it has {first:,} bytes, and max_record_bytes is {most:,}"
    for read in (lambda: list(rows), lambda: rows[:], lambda: rows[sizes.index(first)]):
        with pytest.raises(lz.io.RecordError, match=message):
            read()


@law(lambda form: bool(form.none))
def what_is_none_of_the_format_is_named(form: Format) -> None:
    name = [*form.example.files][-1]
    for found in form.none:
        place = put(Contents({name: found}, []))
        with pytest.raises(lz.io.RecordError, match=f"{place}/{name}: "):
            opened(form, place)


@law(lambda form: has_index(form) and not form.compression)
def an_index_outlives_the_kill_of_who_builds_it(form: Format) -> None:
    place, expected = put(form.example), form.example.rows
    for number in count(1):
        index = folder()
        if not is_killed(partial(opened, form, place, index_dir=index), number, "amid"):
            break
        assert equal(opened(form, place, index_dir=index)[:], expected)
    assert number > 1
