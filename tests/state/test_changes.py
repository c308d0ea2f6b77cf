"""The journal of what was changed: in a state, or in a file of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import State
from lazyckpt.core.user_state import freeze
from lazyckpt.state.changes import Change, Changes
from tests.core.test_control import plus

PIPELINE = lz.count() | lz.map(plus, lz.control(0, name="more")) | lz.batch(2)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda each: (
        st.lists(each, max_size=3)
        | st.lists(each, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), each, max_size=2)
    ),
    max_leaves=6,
)
changes_of = st.builds(
    lambda items, name, value, places: Change(items, name, freeze(value, ""), tuple(places)),
    st.integers(0, 2**60),
    st.text(min_size=1, max_size=5),
    json_values,
    st.lists(st.tuples(st.just("1[0].2"), st.integers(0, 2**40), st.integers(0, 99)), max_size=2),
)


def steered(run: lz.Run[Any], values: Sequence[int]) -> list[Any]:
    found = []
    for value in values:
        found.append(next(run))
        run.set("more", value)
    return found


@settings(max_examples=settings.default.max_examples // 3)
@given(st.lists(changes_of, min_size=1, max_size=4))
def test_changes_survive_json(entries: list[Change]) -> None:
    changes = Changes(entries)
    found = Changes.from_json(json.loads(json.dumps(changes.to_json())))
    assert (found, found.digest, repr(found)) == (changes, changes.digest, repr(changes))
    assert Changes(entries[:-1]).plus(entries[-1]) == changes != Changes(entries[:-1])


@pytest.mark.parametrize(
    "found", [[], [[1, "a", 0]], [[-1, "a", 0, []]], [[1, "a", 0, [["1", 0]]]], {"file": "x"}, 3]
)
def test_what_is_no_journal_is_refused(found: Any) -> None:
    with pytest.raises(lz.InvalidState, match=r"no journal|no change"):
        Changes.from_json(found)


def test_a_state_names_its_journal_and_stays_short(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    run = lz.run(PIPELINE, journal=file)
    assert "changes" not in run.state.to_dict()
    steered(run, range(1, 40))
    state = run.state
    assert len(state.to_json()) < 400 + len(str(file))
    assert state.to_dict()["changes"] == {
        "file": str(file),
        "count": 39,
        "digest": state.changes.digest,
    }
    assert [each.value for each in State.from_json(state.to_json()).changes] == [*range(1, 40)]
    again = lz.run(PIPELINE, state.to_json())
    assert (again.state, again.controls, next(again)) == (state, {"more": 39}, next(run))
    assert lz.step(PIPELINE, state.to_json())[1] == lz.replay(PIPELINE, state)


def test_a_long_journal_moves_to_a_file(tmp_path: Path) -> None:
    run = lz.run(PIPELINE)
    steered(run, [1, 2, 3])
    moved = lz.run(PIPELINE, run.state, journal=tmp_path / "changes.jsonl")
    assert moved.state == run.state
    assert moved.state.changes.file
    assert not run.state.changes.file
    assert steered(moved, [4, 5]) == steered(run, [4, 5])
    assert moved.state == run.state
    os.rename(tmp_path / "changes.jsonl", tmp_path / "elsewhere.jsonl")
    again = lz.run(PIPELINE, moved.state.to_json(), journal=tmp_path / "elsewhere.jsonl")
    assert again.state.changes.file == str(tmp_path / "elsewhere.jsonl")
    assert next(again) == next(run)


def test_runs_that_branch_and_ranks_share_a_file(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    first = lz.run(PIPELINE, journal=file)
    steered(first, [1, 2])
    saved = first.state.to_json()
    steered(first, [3, 4])
    other = lz.run(PIPELINE, saved, journal=file)
    assert steered(other, [3]) == [[6, 7]]
    steered(other, [40])
    assert [each.value for each in lz.run(PIPELINE, first.state).state.changes] == [1, 2, 3, 4]
    assert [each.value for each in lz.run(PIPELINE, other.state).state.changes] == [1, 2, 3, 40]
    size = file.stat().st_size
    assert lz.run(PIPELINE, saved, journal=file).controls == {"more": 2}
    assert file.stat().st_size == size


def test_a_half_written_line_is_none(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    run = lz.run(PIPELINE, journal=file)
    steered(run, [1, 2])
    saved = run.state.to_json()
    with file.open("ab") as opened:
        opened.write(b'{"before":"0123')
    again = lz.run(PIPELINE, saved, journal=file)
    steered(again, [3])
    assert [each.value for each in State.from_json(again.state.to_json()).changes] == [1, 2, 3]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: None, r"the journal .*changes.jsonl can't be read"),
        (lambda text: text.replace("2", "5"), r"changes.jsonl lacks change 3 of the 3 before"),
        (lambda text: text[: len(text) // 2], r"changes.jsonl lacks .*: line 2 is damaged"),
        (lambda text: text.replace("{", "[", 1), r"changes.jsonl lacks .*: line 1 is damaged"),
        (lambda text: "a\nb\n", r"changes.jsonl is no journal of changes, its line 1"),
        (lambda text: "", r"changes.jsonl lacks change 3 of the 3 before the state: it is another"),
    ],
)
def test_another_file_or_a_damaged_one_is_named(tmp_path: Path, spoil: Any, message: str) -> None:
    file = tmp_path / "changes.jsonl"
    run = lz.run(PIPELINE, journal=file)
    steered(run, [1, 2, 3])
    text = file.read_text()
    file.unlink()
    if (spoilt := spoil(text)) is not None:
        file.write_text(spoilt)
    for journal in (None, file):
        with pytest.raises(lz.InvalidState, match=message):
            lz.run(PIPELINE, run.state.to_json(), journal=journal)
    assert (file.read_text() if file.exists() else None) == spoilt


def test_what_is_no_journal_is_not_written_to(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine\n")
    run = lz.run(PIPELINE)
    steered(run, [1])
    for state in (None, run.state):
        with pytest.raises(lz.InvalidState, match="no journal of changes, its line 1"):
            lz.run(PIPELINE, state, journal=file)
    assert file.read_text() == "mine\n"
    with pytest.raises(lz.ArgumentError, match="journal must be the path of a file"):
        lz.run(PIPELINE, journal=3)  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match="no stage takes a control"):
        lz.run(lz.count(), journal=file)


KILLED = """
import os, signal, sys
from pathlib import Path
import lazyckpt as lz
pipeline = lz.count() | lz.map(lambda a, b: a + b, lz.control(0, name="more")) | lz.batch(2)
run = lz.run(pipeline, journal=sys.argv[1])
for value in range(1, 6):
    next(run)
    run.set("more", value)
    Path(sys.argv[2]).write_text(run.state.to_json())
    if value == 4:
        next(run)
        run.set("more", 99)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_goes_on_from_its_last_state(tmp_path: Path) -> None:
    file, saved = tmp_path / "changes.jsonl", tmp_path / "state.json"
    command = [sys.executable, "-c", KILLED, str(file), str(saved)]
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == -signal.SIGKILL
    run = lz.run(PIPELINE, saved.read_text(), journal=file)
    assert run.controls == {"more": 4}
    assert list(islice(run, 2)) == [[12, 13], [14, 15]]
    run.set("more", 0)
    assert [each.value for each in lz.run(PIPELINE, run.state).state.changes] == [1, 2, 3, 4, 0]
