"""The command line: its output and its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lazyckpt as lz
from lazyckpt.cli.main import COMMANDS, main, parser_of

SECRET = "Zq7Zq7Zq7Zq7Zq7Zq7Zq7Zq7"
CODE = f"""
import sys, time
import lazyckpt as lz

pipeline = lz.source(range(9)) | lz.batch(2) | lz.shuffle(seed=0)
number = 3

def divided(x):
    return 1 / x

dividing = lz.source([1, 0]) | lz.map(divided)

def made():
    return pipeline

def failing():
    raise ValueError("no login at s3://me:{SECRET}@bucket\\nin two lines")

def slow():
    print("waiting", flush=True)
    for _ in range(6000):  # a signal just before a sleep begins is looked at when it ends
        time.sleep(0.1)

def ending():
    sys.exit("enough")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules, and states of a pipeline after 2 and 3 items."""
    (tmp_path / "training_of_cli.py").write_text(CODE)
    (tmp_path / "broken_cli.py").write_text(f"api_key = '{SECRET}' +")
    pipeline = lz.source(range(9)) | lz.batch(2) | lz.shuffle(seed=0)
    lz.save(lz.state_at(pipeline, 2), tmp_path / "2.json")
    lz.save(lz.state_at(pipeline, 3), tmp_path / "3.json")
    lz.save(lz.state_at(lz.source(range(9)), 3), tmp_path / "other.json")
    (tmp_path / "bad.json").write_text(f'{{"lazyckpt": 3, "token": "{SECRET}"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("training_of_cli", "broken_cli"):
        sys.modules.pop(name, None)


def environment() -> dict[str, str]:
    path = str(Path(lz.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "100"}


class Done(NamedTuple):
    returncode: Any
    stdout: str
    stderr: str


def called(*arguments: str, columns: int = 100) -> Done:
    """A command in this process."""
    out, error = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(error), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        try:
            status: Any = main(arguments)
        except SystemExit as ended:
            status = ended.code
    return Done(status, out.getvalue(), error.getvalue())


def called_alone(*arguments: str) -> Done:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "lazyckpt", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "arguments", ["diff 2.json 2.json", "diff 2.json 3.json", "inspect bad.json", "nothing", ""]
)
def test_a_process_of_its_own_tells_the_same(folder: Path, arguments: str) -> None:
    assert called_alone(*arguments.split()) == called(*arguments.split())


def test_inspect_shows_words_and_stages(folder: Path) -> None:
    done = called("inspect", "2.json")
    assert done.returncode == 0
    assert done.stdout.startswith("State, 2 items, epoch 0\n")
    assert "shuffle(seed=0)" in done.stdout
    found = json.loads(called("inspect", "--json", "2.json").stdout)
    assert lz.State.from_dict(found) == lz.load("2.json")


def test_diff_tells_by_its_exit_status(folder: Path) -> None:
    assert called("diff", "2.json", "2.json").returncode == 0
    moved = called("diff", "2.json", "3.json")
    assert (moved.returncode, moved.stdout.splitlines()[0]) == (1, "+1 items")
    other = called("diff", "2.json", "other.json")
    assert other.returncode == 1
    assert "batch" in other.stdout


def test_explain_prints_warnings(folder: Path) -> None:
    done = called("explain", "training_of_cli:made", "--threads", "2")
    assert done.returncode == 0
    assert "in 2 threads" in done.stdout
    assert "warning: shuffle(seed=0) shuffles batches" in done.stdout


def test_head_shows_items(folder: Path) -> None:
    done = called("head", "training_of_cli:pipeline", "-n", "2")
    assert done.returncode == 0
    assert str(next(iter(lz.source(range(9)) | lz.batch(2) | lz.shuffle(seed=0)))) in done.stdout


def test_head_fails_where_an_item_does(folder: Path) -> None:
    done = called("head", "training_of_cli:dividing")
    assert done.returncode == 2
    assert "1.0" in done.stdout
    assert "lazyckpt head: ZeroDivisionError: " in done.stderr
    assert "map(divided)" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "inspect 2.json",
        "diff 2.json 2.json",
        "seen training_of_cli:pipeline 3.json",
        "head training_of_cli:pipeline",
        "explain training_of_cli:pipeline",
        "profile training_of_cli:pipeline",
    ],
)
def test_a_narrow_terminal_is_wide_enough(folder: Path, arguments: str) -> None:
    done = called(*arguments.split(), columns=40)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 40


def shown_examples(text: str) -> list[str]:
    """The commands at the end of a help text, each in one line."""
    lines = text.partition("examples:\n")[2].replace("\\\n", "").splitlines()
    return [" ".join(line.split()) for line in lines if line]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_wrapped(command: str) -> None:
    text = called(*command.split(), "--help", columns=40).stdout
    assert [line for line in text.splitlines() if len(line) > 40] == []
    wide = called(*command.split(), "--help", columns=200).stdout
    assert shown_examples(text) == shown_examples(wide)


def test_profile_names_stages_and_writes_a_trace(folder: Path) -> None:
    done = called("profile", "training_of_cli:pipeline", "-n", "4", "--chrome", "trace.json")
    assert done.returncode == 0
    assert "shuffle(seed=0)" in done.stdout
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("inspect missing.json", "missing.json"),
        ("inspect bad.json", "not a state"),
        ("explain training_of_cli", "expected module:pipeline"),
        ("explain training_of_cli:number", "expected a pipeline or a function that returns one"),
        ("explain training_of_cli:nothing", "has no 'nothing'"),
        ("explain training_of_cli:failing", "ValueError: no login at s3://***@bucket; in two"),
        ("explain training_of_cli:ending", "SystemExit: enough"),
        ("explain nowhere_of_cli:pipeline", "no module"),
        ("explain broken_cli:pipeline", "SyntaxError"),
        ("seen training_of_cli:made other.json", "the state belongs to a different pipeline"),
    ],
)
def test_what_won_t_do_is_told_in_one_line(folder: Path, arguments: str, text: str) -> None:
    done = called(*arguments.split())
    assert done.returncode == 2
    assert done.stderr.startswith(f"lazyckpt {arguments.split()[0]}: ")
    assert done.stderr.count("\n") == 1
    assert text in done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "nothing",
        "inspect",
        "explain a:b --threads 0",
        "explain a:b --threads x",
        "explain a:b --threads 1 --processes 1",
        "completion tcsh",
    ],
)
def test_bad_arguments_are_told_with_the_usage(arguments: str) -> None:
    done = called(*arguments.split())
    assert done.returncode == 2
    assert "usage: lazyckpt" in done.stdout + done.stderr


def test_ctrl_c_stops_it(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "lazyckpt", "explain", "training_of_cli:slow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "lazyckpt explain: stopped\n")


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    shown = f"'{sys.executable}' -m lazyckpt explain training_of_cli:made | true"
    done = subprocess.run(shown, shell=True, capture_output=True, text=True, env=environment())
    assert done.stderr == ""


def test_help_teaches() -> None:
    top = called("--help").stdout
    for status in ("0 ", "1 ", "2 ", "130 "):
        assert f"\n  {status}" in top
    for text in COMMANDS.values():
        assert text in " ".join(top.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_has_examples_that_parse(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    lines = shown_examples(capsys.readouterr().out)
    assert lines
    for line in lines:
        command = re.split(" (?:\\||&&|>|>>) ", line.replace("'", ""))[0].split()
        assert command[:2] == ["lazyckpt", name]
        assert parser_of([name]).parse_args(command[1:]).command == name


def test_help_imports_no_command() -> None:
    code = "import sys; from lazyckpt.cli.main import main; main([]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    found = {*done.stdout.splitlines()[-1].split()}
    assert "lazyckpt.cli.main" in found
    assert not {f"lazyckpt.cli.{name}" for name in COMMANDS} & found
    assert not {"lazyckpt.io", "lazyckpt.demo.show", "shtab"} & found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(shell: str) -> None:
    done = called("completion", shell)
    assert done.returncode == 0
    for word in (*COMMANDS, "since", "processes"):
        assert word in done.stdout


def test_completion_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert 'completion needs shtab: pip install "lazyckpt[cli]"' in capsys.readouterr().err
