"""The demo with real processes: killed trainings agree, and the check can fail."""

from __future__ import annotations

import gzip
import random
import re
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.cli.main import main
from lazyckpt.demo import show, trial
from tests.demo.cases import MODULES, STDLIB, TIMEOUT, ignore, small_job


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


def rows(output: str) -> dict[str, list[str]]:
    """The final table: the cells of each row by its name."""
    cells = [re.split(r"  +", line.strip()) for line in output.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) > 1}


def test_the_demo_kills_five_times_and_agrees(texts: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "lazyckpt", "demo", "--data", str(texts), "--lines", "20000"],
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
    with pytest.raises(trial.ChildFailed, match="the training is too short for 5 kills"):
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
    assert main(["demo", "--data", str(texts), "--lines", "20000"]) == 1
    printed = capsys.readouterr().out
    assert rows(printed)[row][2] == "DIFFERENT"
    assert "NOT the same" in printed


def test_a_damaged_checkpoint_is_found(
    texts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial, "PROGRAM", ["-c", DAMAGES_THE_FILE])
    assert main(["demo", "--data", str(texts), "--lines", "20000"]) == 1
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
