"""The demo: a killed training ends as one that was left alone, and the check of it can fail."""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.__main__ import main
from lazyckpt.demo import data, show, trial
from lazyckpt.demo.training import Bigrams, Checkpoint, Job, join, pipeline_of, tokenise, train

STDLIB = Path(sysconfig.get_path("stdlib"))
MODULES = ["bisect.py", "heapq.py", "queue.py", "textwrap.py"]
TIMEOUT = 100


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder of text, plain and packed."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in MODULES[:2]:
        shutil.copy(STDLIB / name, folder / name)
    (folder / "lines.txt").write_bytes(b"".join(b"line %d\n" % i for i in range(300)))
    for name in MODULES[2:]:
        (folder / f"{name}.gz").write_bytes(gzip.compress((STDLIB / name).read_bytes()))
    (folder / ".hidden").write_bytes(b"\xff")
    return folder


def small_job(folder: Path, lines: int = 5_000, seed: int = 0) -> Job:
    return Job.of(data.users([str(folder)]), lines, seed)


class Cut(Exception):
    pass


def cut_after(words: int) -> Callable[..., None]:
    """A listener that ends the training at its n-th word, wherever it then is."""
    numbers = count(1)

    def say(*_: Any) -> None:
        if next(numbers) == words:
            raise Cut

    return say


def ignore(*_: Any) -> None:
    pass


# Laws


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(1, 40), max_size=6))
def test_a_training_cut_anywhere_ends_as_one_left_alone(folder: Path, cuts: list[int]) -> None:
    text = folder / "text"
    text.write_bytes(b"".join(b"%d\n" % (i * i) for i in range(1_000)))
    job = small_job(text)
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


# The demo itself, with real processes


def rows(output: str) -> dict[str, list[str]]:
    """The final table: the cells of each row by its name."""
    cells = [re.split(r"  +", line.strip()) for line in output.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) > 1}


def test_the_demo_kills_five_times_and_agrees(texts: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "lazyckpt", "demo", "--data", str(texts), "--lines", "60000"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    table = rows(ended.stdout)
    assert table["kills"] == ["0", "5"]
    for name in ("batches", "digest of all batches", "final parameters"):
        left, right, same = table[name]
        assert (left, same) == (right, "same")
    assert len(re.findall(r"kill \d+, \d+ after the last save", ended.stdout)) >= 5
    assert re.search(r"resumed in \d+ ms", ended.stdout)
    state = re.search(r"^\{.*\}$", ended.stdout, re.MULTILINE)
    assert state is not None
    assert table["state"][0] == f"{len(state[0])} bytes"
    assert lz.State.from_json(state[0]).items > 0
    assert "\r" not in ended.stdout


def test_kills_closer_together_where_the_training_ends_too_soon(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    job = small_job(texts, 20_000)
    alone = trial.alone(job, tmp_path, ignore)
    calls = count()

    def uniform(low: float, high: float, real: Any = random.uniform) -> Any:
        return 1e6 if next(calls) < 5 else real(low, high)

    monkeypatch.setattr(random, "uniform", uniform)
    found = trial.interrupted(job, tmp_path, 5, alone.seconds, ignore, told.append)
    assert told[0] == 0
    assert len(found.kills) == 5
    assert found.batches == job.batches
    assert (found.digest, found.parameters) == (alone.digest, alone.parameters)


def test_a_training_too_short_for_its_kills_is_no_success(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "ATTEMPTS", 1)
    with pytest.raises(trial.ChildFailed, match="too short a training to be killed 5 times"):
        trial.interrupted(small_job(texts, 1), tmp_path, 5, 1e6, ignore, ignore)


def test_the_library_is_what_it_trains_on(stdlib: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--lines", "20000", "--kills", "6", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "5 .py files in 64 gzip chunks" in printed
    assert "shuffle(seed=3)" in printed
    assert rows(printed)["kills"] == ["0", "6"]


LOSES_A_BATCH = """
import lazyckpt as lz
from lazyckpt.demo import training

def run(pipeline, state, real=lz.run):
    found = real(pipeline, state)
    if state.items:
        next(found)
    return found

lz.run = run
training.main()
"""

LOSES_A_STATE = """
from dataclasses import replace
from lazyckpt.demo import training

def load(path, real=training.Checkpoint.load):
    at = real(path)
    return replace(at, state=replace(at.state, position=training.lz.init(
        training.pipeline_of(training.Job.from_json(open(training.sys.argv[1]).read()))
    ).position))

training.Checkpoint.load = load
training.main()
"""

FORGETS_THE_MODEL = """
from dataclasses import replace
from lazyckpt.demo import training

training.Checkpoint.load = lambda path, real=training.Checkpoint.load: replace(
    real(path), model=training.Bigrams.new()
)
training.main()
"""

DAMAGES_THE_FILE = """
import sys
from pathlib import Path
from lazyckpt.demo import training

path = Path(sys.argv[2])
if path.exists():
    content = bytearray(path.read_bytes())
    content[1_000] ^= 1
    path.write_bytes(content)
training.main()
"""


@pytest.mark.parametrize(
    ("sabotage", "row"),
    [
        (LOSES_A_BATCH, "digest of all batches"),
        (LOSES_A_STATE, "digest of all batches"),
        (FORGETS_THE_MODEL, "final parameters"),
    ],
)
def test_a_broken_resume_is_found(
    texts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sabotage: str,
    row: str,
) -> None:
    monkeypatch.setattr(trial, "PROGRAM", ["-c", sabotage])
    assert main(["demo", "--data", str(texts), "--lines", "60000"]) == 1
    printed = capsys.readouterr().out
    assert rows(printed)[row][2] == "DIFFERENT"
    assert "NOT the same" in printed


def test_a_damaged_checkpoint_is_found(
    texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial, "PROGRAM", ["-c", DAMAGES_THE_FILE])
    assert main(["demo", "--data", str(texts), "--lines", "60000"]) == 1
    printed = capsys.readouterr().err
    assert "the training failed with exit status 1" in printed
    assert "Bad CRC-32" in printed


def test_ctrl_c_stops_the_child(
    texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    def interrupt(self: show.Progress, event: trial.Event) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(show.Progress, "losses", interrupt)
    assert main(["demo", "--data", str(texts)]) == 130
    assert [child.returncode for child in started] == [-signal.SIGKILL]
    assert capsys.readouterr().err == "lazyckpt demo: stopped\n"


# Data


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "no such file or folder: 'missing.txt'"),
        ("empty.txt", b"", "the file is empty: 'empty.txt'"),
        ("empty.gz", gzip.compress(b""), "no line of text in 'empty.gz'"),
        ("latin.txt", b"caf\xe9\n", "not UTF-8 text: 'latin.txt', line 1: "),
        ("plain.gz", b"plain\n", "not a whole gzip file: 'plain.gz': "),
        ("short.gz", gzip.compress(b"one\n" * 99)[:-9], "not a whole gzip file: 'short.gz': "),
        ("flipped.gz", gzip.compress(b"one\n")[:-8] + b"12345678", "not a whole gzip file: "),
    ],
)
def test_bad_data_is_an_error_that_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    assert main(["demo", "--data", name]) == 2
    assert capsys.readouterr().err.startswith(f"lazyckpt demo: {message}")


def test_bad_folders_and_pipes_are_errors(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(data.BadData, match="no file in the folder"):
        data.users([str(tmp_path / "folder")])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(data.BadData, match="not a regular file"):
        data.users([str(tmp_path / "pipe")])


@pytest.mark.parametrize(
    "arguments",
    [["--kills", "4"], ["--kills", "many"], ["--seed", "-1"], ["--lines", "0"], ["--data"]],
)
def test_bad_arguments_have_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(["demo", *arguments])
    assert error.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--version"])
    assert error.value.code == 0
    assert capsys.readouterr().out == f"lazyckpt {lz.__version__}\n"
    assert main([]) == 2
    assert "demo" in capsys.readouterr().out


# The library's chunks


@pytest.fixture
def stdlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A little standard library, and a cache of its own."""
    root = tmp_path / "python"
    for place in ("", "json", "site-packages/foreign"):
        (root / place).mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        shutil.copy(STDLIB / name, root / name)
    (root / "json" / "odd.py").write_bytes(b"a\rb\x0c\r\nno newline at the end")
    (root / "latin.py").write_bytes(b"# caf\xe9\n")
    (root / "site-packages" / "foreign" / "other.py").write_text("foreign\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def cached(stdlib: Path) -> list[str]:
    return sorted(path.name for path in (stdlib.parent / "cache" / "lazyckpt").iterdir())


def test_the_library_is_cut_once_into_all_its_lines(stdlib: Path) -> None:
    told: list[str] = []
    first, second = data.library(told.append), data.library(told.append)
    assert first == second
    assert len(told) == 1
    assert len(first.names) == 64
    assert first.files == len(MODULES) + 1
    found = [line for name in first.names for line in data.lines_of(first.folder / name)]
    odd = [b"a\rb\x0c\r\n", b"no newline at the end\n"]
    expected = [line for name in MODULES for line in io.BytesIO((stdlib / name).read_bytes())]
    assert sorted(found) == sorted(expected + odd)
    assert first.lines == len(found)


def test_a_cut_that_fails_leaves_nothing(stdlib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        numbers = count()

        def compress(*args: Any, real: Any = gzip.compress, **kwargs: Any) -> Any:
            if next(numbers) == 30:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        patch.setattr(gzip, "compress", compress)
        with pytest.raises(KeyboardInterrupt):
            data.library()
    assert cached(stdlib) == []
    assert data.library().lines


def test_a_cut_that_is_killed_leaves_no_half_cache(stdlib: Path) -> None:
    code = (
        "import gzip, itertools, os, signal, sysconfig\n"
        "from lazyckpt.demo import data\n"
        f"sysconfig.get_path = lambda name: {str(stdlib)!r}\n"
        "numbers, real = itertools.count(), gzip.compress\n"
        "def compress(*args, **kwargs):\n"
        "    if next(numbers) == 30:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*args, **kwargs)\n"
        "gzip.compress = compress\n"
        "data.library()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=TIMEOUT)
    assert ended.returncode == -signal.SIGKILL
    (left,) = cached(stdlib)
    assert ".part-" in left
    whole = data.library()
    assert cached(stdlib) == [whole.folder.name, left]


def test_two_cuts_at_once_both_succeed(stdlib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        inner: list[data.Text] = []

        def put(part: Path, folder: Path, real: Any = data._put) -> None:
            if not inner:
                patch.setattr(data, "_put", real)
                inner.append(data.library())
            real(part, folder)

        patch.setattr(data, "_put", put)
        outer = data.library()
    assert inner == [outer]
    assert cached(stdlib) == [outer.folder.name]


def test_damaged_or_stale_chunks_are_not_used(stdlib: Path) -> None:
    first = data.library()
    (first.folder / first.names[7]).write_bytes(b"")
    assert data.library() == first
    assert (first.folder / first.names[7]).stat().st_size
    (stdlib / "new.py").write_text("new = 1\n")
    second = data.library()
    assert second.lines == first.lines + 1
    assert second.folder != first.folder


def test_no_library_or_no_cache_is_bad_data(
    stdlib: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    occupied = stdlib.parent / "occupied"
    occupied.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    assert main(["demo"]) == 2
    assert "set XDG_CACHE_HOME" in capsys.readouterr().err
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(stdlib / "nowhere"))
    assert main(["demo"]) == 2
    assert "--data" in capsys.readouterr().err


# The screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    screen = show.Screen()
    screen.status("going")
    screen.line("done")
    assert terminal.getvalue() == "going\r     \rdone\n"


def test_elsewhere_only_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = show.Screen()
    screen.status("going")
    screen.line("done")
    screen.clear()
    assert capsys.readouterr().out == "done\n"
