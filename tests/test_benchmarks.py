"""The benchmark command: bad input, and contestants that fail or hang."""

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
        Path("part").write_text(f"{os.getpid()} {process.pid}")
        Path("part").rename("pids")
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
    "exact_once": """
def w1(n):
    return lambda: {"seconds": 1.0, "inexact": 0, "inexact again": 1}
""",
    "never_exact": """
def w1(n):
    return lambda: {"seconds": 1.0, "inexact": 2, "inexact again": 3}
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
import json
import harness
harness.MODULES = harness.PEERS = {{name: name for name in {names!r}}}
terms = harness.Terms(rounds=2, limit={limit}, enough={enough})
held = harness.hold(harness.Contest("W1", "sums", 1), {names!r}, terms)
print(json.dumps([row.to_json() for row in held]))
"""

SHUFFLES = """
import json, shuffles
print(json.dumps([row.values for row in shuffles.shuffles(1)]))
"""

RESUMES = """
import json
from resuming import resumes

def places(first_time, second_time):
    def start(text):
        if text is None:
            place, resumed = [0], False
        else:
            place, resumed = [json.loads(text) // 10], True
            change = second_time if json.loads(text) % 10 else first_time
            place[0] += change(text) if callable(change) else change
        state = (place, resumed)
        return state, stream(place)

    def stream(place):
        while True:
            place[0] += 1
            yield place[0]

    return start

def lost(text):
    raise OSError(text)

def save(state):
    place, resumed = state
    return json.dumps(place[0] * 10 + resumed).encode()

tried = [(0, 0), (0, 1), (1, 0), (0, lost)]
print(json.dumps([resumes(500, places(*changes), save)() for changes in tried]))
"""

INTERRUPTED = """
import runpy, sys
sys.path.insert(0, {benchmarks!r})
import harness
harness.MODULES["toolz"] = "interrupting"
sys.argv[1:] = ["--only", "W9", "--quick", "--rounds", "5", "--peers", "toolz"]
sys.argv += ["--json", "rows.json"]
runpy.run_path({benchmarks!r}, run_name="__main__")
"""


def held(folder: Path, *names: str, limit: float = 100.0, enough: float = 100.0) -> dict[str, Any]:
    """The rows of a contest of such contestants, by name."""
    for name in names:
        (folder / f"{name}.py").write_text(CONTESTANTS[name])
    code = HOLD.format(benchmarks=str(BENCHMARKS), names=list(names), limit=limit, enough=enough)
    return {row["contestant"]: row for row in json.loads(printed(folder, code))}


def printed(folder: Path, code: str) -> str:
    """The output of a program that imports the benchmarks' modules, and those in a folder."""
    code = f"import sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n{code}"
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=_with(folder), check=True, capture_output=True, text=True
    ).stdout


def command(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS), *arguments],
        env=ENV,
        capture_output=True,
        text=True,
        **how,
    )


def test_rows_say_who_fails_is_inexact_or_takes_long_and_have_the_best_way(tmp_path: Path) -> None:
    names = {*CONTESTANTS} - {"sleeper", "interrupting"}
    rows = held(tmp_path, *names)
    remarks = {name: row["remark"] for name, row in rows.items()}
    assert remarks == {
        "failing": "failed: OSError: no such shard",
        "failing_later": "failed: OSError: no such shard",
        "dying": "failed: its process ended",
        "missing": "not installed: no module no_such_library",
        "": "has no way to: elsewhere",
        "exact_once": "not exact the second time",
        "never_exact": "not exact",
        "noisy": "",
        "two_ways": "quick",
    }
    assert len(rows["noisy"]["values"]) == 2
    assert rows["two_ways"]["values"] == [1e9, 1e9]
    assert len(held(tmp_path, "noisy", enough=0.0)["noisy"]["values"]) == 1  # it takes long


def test_one_that_hangs_is_ended_with_its_workers(tmp_path: Path) -> None:
    for limit in (1.0, 4.0, 16.0, 64.0):  # a busy machine may take long to start them
        rows = held(tmp_path, "sleeper", "noisy", limit=limit)
        assert rows["sleeper"]["remark"] == f"not done within {limit:g} s"
        if (tmp_path / "pids").exists() and rows["noisy"]["values"]:
            break
    assert len(rows["noisy"]["values"]) == 2
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    until(lambda: not any(map(is_alive, pids)))


def test_a_resume_is_exact_only_if_it_is_so_the_second_time(tmp_path: Path) -> None:
    found = json.loads(printed(tmp_path, RESUMES))
    wrong = [(row["inexact"], row["inexact again"]) for row in found]
    assert wrong == [(0, 0), (0, 3), (3, 3), (0, 3)]
    assert [row["bytes"] for row in found] == [4, 4, 4, 4]


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


def test_the_pages_have_the_figures_of_the_stored_run() -> None:
    code = """
from pathlib import Path
from report import BESIDE, PAGE, with_figures, with_peers
for page, written in ((PAGE, with_figures), (BESIDE, with_peers)):
    text = page.read_text("utf-8")
    print(written(text, Path("results.json")) == text)
"""
    assert printed(BENCHMARKS, code) == "True\nTrue\n"


def test_the_figures_of_shuffles_are_those_of_today(tmp_path: Path) -> None:
    found = json.loads(printed(tmp_path, SHUFFLES))
    stored = json.loads((BENCHMARKS / "results.json").read_text())["rows"]
    kept = [row["values"] for row in stored if row["name"] == "shuffles"]
    assert len(kept) == len(found)
    for values, today in zip(kept, found, strict=True):
        assert values == pytest.approx(today, abs=0.002)


def _with(folder: Path) -> dict[str, str]:
    return ENV | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
