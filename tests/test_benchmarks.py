"""The benchmark command: what it says of bad input, and of contestants that fail or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import is_alive, until

BENCHMARKS = Path(__file__).parent / "benchmarks"
ENV = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

CONTESTANTS = {
    "sleeper": """
import multiprocessing, os, time
from pathlib import Path
def w1(n):
    def sleep():
        process = multiprocessing.Process(target=time.sleep, args=(1000,))
        process.start()
        Path("pids").write_text(f"{os.getpid()} {process.pid}")
        time.sleep(1000)
    return sleep
""",
    "failing": "def w1(n):\n    raise OSError('no such shard')\n",
    "failing_later": """
calls = []
def w1(n):
    def go():
        calls.append(n)
        if len(calls) > 2:
            raise OSError('no such shard')
    return go
""",
    "dying": "import os\ndef w1(n):\n    return lambda: os._exit(1)\n",
    "missing": "import no_such_library\ndef w1(n):\n    return lambda: None\n",
    "elsewhere": "def w2(n):\n    return lambda: None\n",
    "interrupting": """
import os, signal, time
from pathlib import Path
calls = []
def w9(n):
    def go():
        calls.append(n)
        if len(calls) > 2:
            Path("pid").write_text(str(os.getpid()))
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(1000)
    return go
""",
    "noisy": "def w1(n):\n    return lambda: print('{}')\n",
    "two_ways": """
def w1_slow(n):
    return lambda: {"seconds": 2.0}
def w1_quick(n):
    return lambda: {"seconds": 1.0}
""",
}

HOLD = """
import json, sys
sys.path.insert(0, {benchmarks!r})
import contest
contest.MODULES = dict.fromkeys({names!r})
contest.MODULES.update({{name: name for name in contest.MODULES}})
contest.PEERS = contest.MODULES
held = contest.hold(contest.Contest("W1", "sums", 1), {names!r}, 2, 2.0)
print(json.dumps([row.to_json() for row in held]))
"""

INTERRUPTED = """
import runpy, sys
sys.path.insert(0, {benchmarks!r})
import contest
contest.MODULES["toolz"] = "interrupting"
sys.argv[1:] = ["--only", "W9", "--quick", "--rounds", "5", "--peers", "toolz"]
sys.argv += ["--json", "rows.json"]
runpy.run_path({benchmarks!r}, run_name="__main__")
"""


def held(folder: Path, *names: str) -> dict[str, Any]:
    """The rows of a contest of such contestants, by name."""
    for name in names:
        (folder / f"{name}.py").write_text(CONTESTANTS[name])
    code = HOLD.format(benchmarks=str(BENCHMARKS), names=list(names))
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=_with(folder), check=True, capture_output=True, text=True
    )
    return {row["contestant"]: row for row in json.loads(done.stdout)}


def command(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS), *arguments],
        env=ENV,
        capture_output=True,
        text=True,
        **how,
    )


def test_a_contestant_that_fails_has_a_row_that_says_how(tmp_path: Path) -> None:
    rows = held(tmp_path, "failing", "failing_later", "dying", "missing", "noisy", "elsewhere")
    assert rows["failing"]["remark"] == "failed: OSError: no such shard"
    assert rows["failing_later"]["remark"] == "failed: OSError: no such shard"
    assert rows["dying"]["remark"] == "failed: its process ended"
    assert rows["missing"]["remark"] == "not installed: no module no_such_library"
    assert len(rows["noisy"]["values"]) == 2
    assert rows[""]["remark"] == "has no way to: elsewhere"


def test_one_that_hangs_is_ended_with_its_workers(tmp_path: Path) -> None:
    rows = held(tmp_path, "sleeper", "noisy")
    assert rows["sleeper"]["remark"] == "not done within 2 s"
    assert len(rows["noisy"]["values"]) == 2
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    until(lambda: not any(map(is_alive, pids)))


def test_the_best_of_several_ways_counts(tmp_path: Path) -> None:
    row = held(tmp_path, "two_ways")["two_ways"]
    assert row["remark"] == "quick"
    assert row["values"] == [1e9, 1e9]


FILES = """
import json, sys
sys.path.insert(0, {benchmarks!r})
from contestants.of_lazyckpt import w11jsonl
print(json.dumps(w11jsonl(200_000)()))
"""


def test_readers_of_files_are_measured(tmp_path: Path) -> None:
    env = ENV | {"LAZYCKPT_BENCHMARK_FILES": str(tmp_path)}
    code = FILES.format(benchmarks=str(BENCHMARKS))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["inexact"] == 0
    assert all(found[key] > 0 for key in ("order", "shuffled", "local", "10%", "90%", "peak"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "W1,W99"], "no row W99; there are W1, W2"),
        (["--peers", "grian"], "no peer grian; there are infinibatch, grain"),
        (["--rounds", "0"], "--rounds must be above 0, got 0"),
        (["--limit", "-1"], "--limit must be above 0, got -1"),
        (["--json", "/no/such/folder/file.json"], "no folder '/no/such/folder' for file.json"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], message: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_run_has_a_table_and_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = command("--only", "W1", "--quick", "--peers", "toolz", "--json", str(path), check=True)
    found = json.loads(path.read_text())
    assert {row["contestant"] for row in found["rows"]} == {"", "by hand", "lazyckpt", "toolz"}
    assert all(row["median"] > 0 for row in found["rows"])
    ours = next(row for row in found["rows"] if row["contestant"] == "lazyckpt")
    assert ours["to_hand"] > 0
    assert ours["to_peer"] > 0
    assert found["machine"] in done.stdout
    for row in found["rows"]:
        assert row["compared"][:60] in done.stdout


def test_an_interrupted_run_keeps_what_is_measured(tmp_path: Path) -> None:
    (tmp_path / "interrupting.py").write_text(CONTESTANTS["interrupting"])
    code = INTERRUPTED.format(benchmarks=str(BENCHMARKS))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=_with(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "interrupted; 4 rows are measured" in done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    counts = {(row["contestant"], row["unit"]): len(row["values"]) for row in rows}
    assert counts == {
        ("by hand", "ns"): 2,
        ("lazyckpt", "ns"): 2,
        ("toolz", "ns"): 1,
        ("lazyckpt", "B"): 2,
    }
    assert "a state" in done.stdout
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not is_alive(pid))


def _with(folder: Path) -> dict[str, str]:
    return ENV | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
