"""Whatever the bytes of a state: nothing is executed, and it is taken or refused at little cost.

What goes through the whole of a table, or fills memory, does so in a process
of its own, which may have so much memory and time and no more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import State
from lazyckpt.core.content import encode
from lazyckpt.core.user_state import FrozenDict, FrozenList, Own
from lazyckpt.state.state import as_state
from lazyckpt.testing.laws import Stream
from lazyckpt.testing.strategies import pipelines
from tests.combinators.table import NUMBERS, OTHERWISE, PLAIN, doubled, kept
from tests.helpers import IS_DEEP
from tests.state.cases import signed

HUGE = [2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, 2**10_000]
LEAVES: list[Any] = [
    *range(8), 39, 40, 41, 99, *HUGE, (), (0,), (0, 0), ((0, 0), 0), (0,) * 99,
    Own((0,)), Own(("a",)), Own((None,)), Own((FrozenDict((((), ()),)),)),
]  # fmt: skip


EMPTY = lz.init(lz.source([])).to_dict()


def used(pipeline: lz.Pipeline[Any], text: str | bytes | State, executor: Any = None) -> None:
    """Take or refuse a state in every way there is; any error but ours goes through."""
    try:
        given = as_state(text)
    except lz.PipelineError:
        assert refusal(lambda: lz.rebase(text, pipeline))
        assert refusal(lambda: walked(pipeline, text, executor))
        return
    ways: list[Callable[[], Any]] = [
        lambda: given.epoch,
        lambda: given.to_json(),
        lambda: lz.step(pipeline, given),
        lambda: lz.rebase(given, pipeline),
        lambda: lz.diff(lz.init(pipeline), given),
        lambda: lz.resume_cost(pipeline, given),
        lambda: walked(pipeline, given, executor),
    ]
    if pipeline.calls[0].name == "mix":
        ways.append(lambda: lz.mix_counts(pipeline, given))
    assert all(len(refusal(way)) < 5000 for way in ways)


def refusal(way: Callable[[], Any]) -> str:
    """The message of an error of ours, if there is one; other errors are raised."""
    try:
        way()
    except lz.PipelineError as error:
        return str(error)
    return ""


def walked(pipeline: lz.Pipeline[Any], text: str | bytes | State, executor: Any) -> None:
    with lz.run(pipeline, text, strict=False, executor=executor) as run:
        for _ in islice(run, 5):
            pass
        assert State.from_json(run.state.to_json()) == run.state


# --- positions that no run has reached ---

Path: TypeAlias = tuple[int, ...]


def parts(found: Any, path: Path = ()) -> Iterator[Path]:
    """The paths to all that a position consists of, as tuples or as JSON."""
    yield path
    if type(found) in (tuple, list):
        for number, inner in enumerate(found):
            yield from parts(inner, (*path, number))


def placed(stages: list[Any], path: Path = ()) -> Iterator[Path]:
    """The paths to all that the places in a state's stages consist of."""
    for number, (_, _, *rest) in enumerate(stages):
        here = (*path, number)
        if rest:
            yield from parts(rest[0], (*here, 2))
        for n, pipeline in enumerate(rest[1] if len(rest) > 1 else ()):
            inner = (*here, 3, n)
            yield inner
            if type(pipeline[0]) is str:  # a digest, and a place
                yield from (path for path in parts(pipeline, inner) if path[len(inner) :])
            else:
                yield from placed(pipeline, inner)


def put(found: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    number, rest = path[0], path[1:]
    inner = put(found[number], rest, new)
    return type(found)((*found[:number], inner, *found[number + 1 :]))


def spoiled(state: State, path: Path, leaf: Any) -> State | str:
    """The state with that in place of a part of its position, or of its stages as JSON."""
    if path[:1] == HERE:
        return State(state.stages, state.items, put(state.position, path[1:], leaf))
    found = state.to_dict()
    return signed(found, stages=put(found["stages"], path, encode(leaf)))


HERE = (-1,)


def paths(state: State) -> list[Path]:
    """The kinds of damage for `spoiled`."""
    whole = [(*HERE, *path) for path in parts(state.position)]
    return [*whole, *placed(state.to_dict()["stages"])]


@given(pipelines(), st.data())
def test_any_position_is_taken_or_refused(pipeline: lz.Pipeline[Any], data: st.DataObject) -> None:
    states = [lz.init(pipeline), *(s for _, s in islice(lz.run(pipeline).with_state(), 12))]
    state = data.draw(st.sampled_from(states))
    has_own = '{"own"' in state.to_json()
    news = [leaf for leaf in LEAVES if not (has_own and type(leaf) is Own)]  # for users' functions
    bad: Any = state
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(sorted(paths(state), key=len, reverse=True)))
        bad = spoiled(state, path, data.draw(st.sampled_from(news)))
        try:
            state = as_state(bad)
            state.to_json()
        except lz.InvalidState:
            break
    used(pipeline, bad, data.draw(st.sampled_from([None, None, None, lz.threads(2)])))


def table() -> list[lz.Pipeline[Any]]:
    """Every combinator over indexable data and over a stream, and possible arguments."""
    found: list[Any] = [
        lz.count(3, -2) | lz.batch(2),
        lz.random_floats(seed=0) | lz.batch(2, collate=lz.stack),
        lz.columns(x=np.arange(40)) | lz.shuffle(seed=0) | lz.batch(3, collate=lz.stack),
        lz.columns(x=np.arange(40)) | lz.repeat() | lz.batch(3, collate=lz.stack),
        lz.count() | lz.repeat() | lz.shuffle(5, seed=0),
        lz.count() | lz.filter(bool) | lz.shuffle(5, seed=0),
        lz.source(range(3000)) | lz.shuffle(300, seed=1),
        lz.source(Stream(range(3000))) | lz.shuffle(300, seed=1),
        *(lz.source(NUMBERS) | stage for stage in (
            lz.repeat() | lz.repeat() | lz.shuffle(5, seed=0) | lz.repeat(),
            lz.shuffle(seed=0) | lz.repeat() | lz.block_shuffle(3, seed=0),
            lz.sample(range(40), seed=0, replacement=False),
            lz.shard(num_shards=3, index=1, contiguous=True, remainder="repeat"),
            lz.shard(num_shards=3, index=2, contiguous=True, remainder="pad", pad=0),
        )),
    ]  # fmt: skip
    made = [*PLAIN.values(), *(other for _, other, _ in OTHERWISE)]
    for data in (lz.source(NUMBERS), lz.source(Stream(NUMBERS))):
        for each in made:
            with suppress(lz.ArgumentError):  # it wants random access
                found += [pipeline for pipeline in [each(data)] if pipeline not in found]
        found += [
            lz.mix([data, data], lambda t: [1, 1], seed=0),
            lz.mix([data, data], [1, 2**0.5], deterministic=True),
            *(data | stage for stage in (
                lz.flat_map(lambda x: iter([x, x])), lz.flat_map(lambda x: lz.source([x, x])),
                lz.shard(num_shards=3, index=2, remainder="pad", pad=0),
                lz.interleave_map(lambda x: lz.source([x, x]), cycle_length=2, block_length=2),
            )),
        ]  # fmt: skip
    return found


def test_the_table_has_every_combinator() -> None:
    assert {call.name for pipeline in table() for call in pipeline.calls} == set(lz.registry)


def every_leaf() -> None:
    """Some leaves in place of each part of the positions, and in the profile `deep` all."""
    step = 1 if IS_DEEP else 9
    for pipeline in table():
        good = lz.state_at(pipeline, 1)
        for number, path in enumerate(paths(good)):
            for leaf in LEAVES[number % step :: step]:
                used(pipeline, spoiled(good, path, leaf))


def test_a_state_without_an_argument_of_a_stage_is_taken_or_refused() -> None:
    for pipeline in table():
        good = lz.init(pipeline).to_dict()
        for number, (name, known, *rest) in enumerate(good["stages"]):
            for lacking in known:
                less = {key: value for key, value in known.items() if key != lacking}
                stages = put(good["stages"], (number,), [name, less, *rest])
                refusal(partial(lz.rebase, signed(good, stages=stages), pipeline))


# --- texts that fill memory or take forever ---

SCAN = lz.source(range(9)) | lz.scan(kept, 0)


def own(inner: str) -> str:
    """The text of a state of `SCAN` with that as the user's own, and a fitting checksum."""
    return scanned([0, 0], [{"own": json.loads(inner)}])


def scanned(*news: Any) -> str:
    """The text of a state of `SCAN` with these as the places of its stages."""
    start = lz.init(SCAN).to_dict()
    pairs = zip(start["stages"], news, strict=True)
    return signed(start, stages=[[*stage[:2], place] for stage, place in pairs])


def deep(depth: int, begin: str, end: str, core: str = "0") -> str:
    return begin * depth + core + end * depth


def large_texts() -> dict[str, Callable[[], Any]]:
    whole = (1 << 24) - 1000 if IS_DEEP else 1 << 23  # characters; a little more is too long
    most = 1 << 22
    clash = 2**61 - 1  # ints that are equal modulo this have one hash
    return {
        "zeros": lambda: b"\0" * 100_000_000,
        "digits": lambda: "0" * 100_000_000,
        "an int": lambda: "9" * most,
        "an int in its place": lambda: '{"lazyckpt":3,"items":' + "9" * most + "}",
        "a float": lambda: "0." + "9" * most,
        "an exponent": lambda: '{"lazyckpt":3e' + "9" * most + "}",
        "empty lists": lambda: '{"lazyckpt":3,"stages":[' + "[]," * (most // 3) + "0]}",
        "empty dicts": lambda: "[" + "{}," * (whole // 3) + "0]",
        "small dicts": lambda: "[" + '{"":0},' * (most // 7) + "0]",
        "deep lists": lambda: "[" * most,
        "deep dicts": lambda: '{"a":' * (most // 5),
        "escapes": lambda: '"' + "\\u0000" * (most // 6) + '"',
        "a quote": lambda: '"' + "a" * most,
        "one name": lambda: "{" + '"a":0,' * (most // 6) + '"b":0}',
        "names": lambda: signed(EMPTY, stages=[["x" * 1000, {}, [0]]] * (most // 1013)),
        "long hex": lambda: signed(EMPTY, items={"int": "0x" + "f" * (most - 1000)}),
        "long hex of one's own": lambda: own('{"int":"0x' + "f" * (most - 1000) + '"}'),
        "a wide place": lambda: scanned([0] * (most // 3), [{"own": 0}]),
        "a place of wholes": lambda: scanned([[[]]] * (whole // 7), [{"own": 0}]),
        "many pipelines": lambda: signed(
            EMPTY, stages=[["zip", {}, [0], [["a#0"]] * (most // 11)]]
        ),
        "joined deep": lambda: deep(most // 22, '[["zip",{},[0],[', "]]]"),
        "keys of one hash": lambda: own(
            json.dumps({"dict": [[{"int": hex(clash * k)}, 0] for k in range(1, 200_000)]})
        ),
    }


def enter(text: str | bytes) -> None:
    list(lz.run(SCAN, text))


def large() -> None:
    """All of these, with decimal ints of any length, as some programs want them."""
    sys.set_int_max_str_digits(0)
    for name, make in large_texts().items():
        text = make()
        assert refusal(partial(enter, text)), name


DONE = {"large": large, "every leaf": every_leaf}
ROOM = 3 << 29  # bytes of addresses, of which the packages take some hundred millions


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="no such limits there")
@pytest.mark.parametrize("name", DONE)
def test_within_limits(name: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, name],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # each has addresses set aside
        capture_output=True,
        text=True,
        check=False,
        timeout=500,  # which a busy machine may take
    )
    assert done.returncode == 0, done.stderr[-3000:]


# --- a user's own state ---


@pytest.mark.parametrize("depth", [1, 50, 200, 300, 400, 500, 700, 990, 2000, 100_000])
@pytest.mark.parametrize(
    ("begin", "end"),
    [("[", "]"), ('{"list":[', "]}"), ('{"dict":[[0,', "]]}"), ('{"own":', "}")],
)
def test_deep_states(depth: int, begin: str, end: str) -> None:
    start = lz.init(SCAN).to_json().replace('[{"own":0}]', "DEEP")
    assert "DEEP" in start
    body = start.replace("DEEP", deep(depth, begin, end))
    owned = start.replace("DEEP", '[{"own":' + deep(depth, begin, end) + "}]")
    for text in (body, owned):
        with suppress(RecursionError):  # its checksum is wrong then
            text = signed(json.loads(text))
        used(SCAN, text)
        used(lz.source(range(9)) | lz.flat_scan(doubled, 0), text)


_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_json = st.recursive(
    _leaves | st.sampled_from(HUGE[:4]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["int", "own", "list", "dict", "float"]) | st.text(max_size=3),
            inner,
            max_size=2,
        )
    ),
    max_leaves=20,
)


@given(_json)
def test_any_json_as_a_field(value: Any) -> None:
    good = lz.state_at(SCAN, 3).to_dict()
    for field in ("lazyckpt", "items", "stages", "rebased", "skipped", "check", "other"):
        text = signed(good, **{field: value}) if field != "check" else json.dumps({"check": value})
        try:
            found = State.from_json(text)
        except lz.InvalidState:
            continue
        assert State.from_json(found.to_json()) == found
        hash(found)
        used(SCAN, text)
    used(SCAN, own(json.dumps({"list": [{"tuple": 0}]})))
    used(SCAN, scanned(value, [{"own": 0}]))
    try:
        used(SCAN, own(json.dumps(value)))
    except TypeError as error:  # of the user's function
        raise AssertionError from error


@given(
    st.lists(st.tuples(st.sampled_from(["batch", "repeat", "shard", "concat_then_split"]), _json))
)
def test_any_arguments_of_stages(found: list[Any]) -> None:
    pipeline: Any = lz.source([[1], [2, 3]]) | lz.concat_then_split(2)
    pipeline = pipeline | lz.repeat() | lz.shard(num_shards=2, index=0) | lz.batch(2)
    start = lz.init(pipeline).to_dict()
    names = {"batch": "batch_size", "repeat": "count", "shard": "num_shards"}
    for name, value in found:
        for stage in start["stages"]:
            if stage[0] == name:
                stage[1] = {**stage[1], names.get(name, "length"): value}
    text = signed(start)
    assert len(refusal(lambda: lz.run(pipeline, text))) < 5000
    assert len(refusal(lambda: lz.rebase(text, pipeline))) < 5000


def test_an_error_shows_no_control_codes() -> None:
    text = signed(EMPTY, stages=[["source\x1b[2J\n", {}, [0, 0]]])
    with pytest.raises(lz.StateMismatch) as caught:
        lz.run(lz.source([]), text)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("unit", "times"),
    [(2**1000, 200), (2**1000, 300), ("x", 1 << 24), ("x", 1 << 23)],
    ids=["int", "longer int", "long text", "text"],
)
def test_what_is_written_can_be_read(unit: Any, times: int) -> None:
    mine = unit * times if isinstance(unit, str) else unit**times
    run = lz.run(lz.source([1]) | lz.scan(lambda s, x: (mine, x), 0))
    next(run)
    if error := refusal(lambda: run.state.to_json()):
        assert "is too long" in error
    else:
        assert State.from_json(run.state.to_json()) == run.state


def test_a_list_of_ones_own_is_a_list() -> None:
    seen = []
    pipeline = lz.source([1]) | lz.scan(lambda s, x: (s, seen.append(s)), 0)
    list(lz.run(pipeline, own('{"list": [[1], {"dict": []}]}'), strict=False))
    assert seen == [[(1,), {}]]
    assert FrozenList((1,)) == (1,)


if __name__ == "__main__":
    limit = import_module("resource")  # which Windows lacks
    limit.setrlimit(limit.RLIMIT_AS, (ROOM, ROOM))
    limit.setrlimit(limit.RLIMIT_CPU, (300, 300))
    DONE[sys.argv[1]]()


@given(_json)
@example({})
@example({"int": "0x10"})
def test_any_identity_of_files(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.txt").write_text("a\nb\nc\n")
    pipeline = lz.source(lz.io.read_text(folder / "a.txt", index_dir=folder))
    start = lz.state_at(pipeline, 1).to_dict()
    name, identity, position = start["stages"][0]
    for field in identity:
        text = signed(start, stages=[[name, {**identity, field: value}, position]])
        assert len(refusal(partial(lz.run, pipeline, text))) < 5000
        used(pipeline, text)
