"""The text of a state is shown in one line and without control codes, however long it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

import pytest

import lazyckpt as lz
from lazyckpt import State
from tests.state.cases import signed

EVIL = "\x1b[31m\nevil\u202e"
Path: TypeAlias = tuple[Any, ...]


def lanes(num_shards: int) -> lz.Pipeline[Any]:
    return lz.lanes([lz.source(range(5))] * 4, num_shards=num_shards, index=0)


def shards(num_shards: int) -> lz.Pipeline[Any]:
    sharded = lz.source(range(50)) | lz.shard(num_shards=num_shards, index=0)
    return sharded | lz.shuffle(3, seed=0)


def mixture(parts: int) -> lz.Pipeline[Any]:
    each = [lz.source(range(9), name=f"web{n}") | lz.shuffle(4, seed=1) for n in range(parts)]
    return lz.mix(each, [1] * parts, seed=0)


PIPELINES: dict[str, lz.Pipeline[Any]] = {
    "own": lz.source(range(9)) | lz.scan(lambda state, x: (state, x), "a") | lz.take(5),
    "shard": shards(2),
    "lanes": lanes(2),
    "mix": mixture(2),
    "digests": mixture(20),
}


def strings(found: Any, path: Path = ()) -> Iterator[Path]:
    """The strings, numbers and keys in JSON."""
    if isinstance(found, list):
        for number, value in enumerate(found):
            yield from strings(value, (*path, number))
    elif isinstance(found, dict):
        for key, value in found.items():
            yield (*path, (key,))
            yield from strings(value, (*path, key))
    else:
        yield path


def put(found: Any, path: Path, new: Any) -> Any:
    """JSON with a different value at a path, or a different key."""
    if not path:
        return new
    first, *rest = path
    if isinstance(first, tuple):
        return {new if key in first else key: value for key, value in found.items()}
    if isinstance(found, list):
        return [put(value, (*rest,), new) if n == first else value for n, value in enumerate(found)]
    return {k: put(value, (*rest,), new) if k == first else value for k, value in found.items()}


def spoiled(pipeline: lz.Pipeline[Any], state: State) -> Iterator[str]:
    """The state with control codes in each place that takes some."""
    body = state.to_dict()
    for path in islice(strings(body), 40):
        for new in (EVIL, [EVIL], {"own": EVIL}, {EVIL: EVIL})[: 1 if () in map(type, path) else 4]:
            with suppress(lz.InvalidState, TypeError):
                text = signed(put(body, path, new))
                State.from_json(text)
                yield text


def told(pipeline: lz.Pipeline[Any], text: str) -> Iterator[str]:
    """All that is said about a state."""
    good, state = lz.state_at(pipeline, 3), State.from_json(text)
    other = State(state.stages, state.items + 1, good.position)
    others = (pipeline, lanes(3), shards(3), pipeline | lz.batch(2))
    ways: list[Callable[[], Any]] = [
        lambda: repr(state),
        state._repr_html_,
        lambda: repr(other),
        lambda: lz.diff(good, state),
        lambda: lz.diff(state, good),
        lambda: lz.diff(state, other),
        lambda: repr(lz.diff(other, state)),
        lambda: good < state,
        lambda: lz.run(pipeline, state),
        lambda: lz.resume_cost(pipeline, state),
        *(lambda p=p: lz.rebase(state, p) for p in others),  # type: ignore[misc]
        *(
            lambda p=p, states=states: lz.reshard(states, p)  # type: ignore[misc]
            for p in others
            for states in ([state], [state, state], [state, other], [good, state])
        ),
    ]
    for way in ways:
        try:
            yield str(way())
        except lz.PipelineError as error:
            yield str(error)


@pytest.mark.parametrize("name", PIPELINES)
def test_nothing_shows_the_control_codes_of_a_state(name: str) -> None:
    pipeline, count = PIPELINES[name], 0
    for text in spoiled(pipeline, lz.state_at(pipeline, 2)):
        for said in told(pipeline, text):
            assert all(line.isprintable() for line in said.split("\n")), ascii(said)
            assert not any(line.startswith("evil") for line in said.split("\n")), ascii(said)
        count += 1
    assert count > 5


# --- of as many stages as a text can hold ---


def long_state(stages: int, at: int) -> str:
    body = lz.state_at(lz.source(range(5)), at).to_dict()
    body["stages"] += [["take", {"n": 9}, [at]]] * stages
    return signed(body)


def test_states_of_very_many_stages_are_compared() -> None:
    one, other = (long_state(2_000, at) for at in (1, 2))
    difference = lz.diff(one, other)
    assert len(difference.moves) == 2_001
    assert str(difference).startswith("+1 items\nstage 1, source: item 1 → 2\nstage 2, take: 1 → 2")
    assert not lz.diff(one, one)
    assert State.from_json(one) == State.from_json(one)
    assert State.from_json(one) != State.from_json(other)
    assert State.from_json(one) < State.from_json(other)
    with pytest.raises(lz.StateMismatch, match="belong to different pipelines"):
        lz.diff(one, long_state(1_999, 1))
    with pytest.raises(lz.StateMismatch, match="belong to a different pipeline"):
        lz.reshard([one, one], shards(2))


def test_a_hash_takes_no_more_stack_for_more_stages(tmp_path: Any) -> None:
    file = tmp_path / "state.json"
    file.write_text(long_state(20_000, 1))
    code = """
import sys, threading
import lazyckpt as lz

state = lz.load(sys.argv[1])
threading.stack_size(1 << 18)
thread = threading.Thread(target=lambda: print({state: 1}[state]))
thread.start()
thread.join()
"""
    command = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n", done.stderr[-1000:]
