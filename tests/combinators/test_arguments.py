"""Every argument of every combinator: which values are accepted and refused, and the messages."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

OURS = sorted(n for n, c in lz.registry.items() if c.build.__module__.startswith("lazyckpt."))

# Every argument with its kind; a good call takes the first of each kind's GOOD.
KINDS: dict[str, dict[str, str]] = {
    "source": {"data": "data", "name": "short?"},
    "columns": {"arrays": "arrays"},
    "unfold": {"step": "function", "init": "json"},
    "count": {"start": "integer", "step": "integer"},
    "random_floats": {"seed": "natural"},
    "random_indices": {"weights": "weights", "seed": "natural"},
    "from_generator": {"fn": "function"},
    "once": {"value": "anything"},
    "map": {"fn": "function", "vectorized": "boolean"},
    "starmap": {"fn": "function"},
    "tap": {"fn": "function"},
    "enumerate": {"start": "integer"},
    "random_map": {"fn": "function", "seed": "natural", "generator": "generator"},
    "flat_scan": {"step": "function", "init": "json", "flush": "function?"},
    "lru_cache": {"size": "positive"},
    "case": {"selector": "pipelines", "pipelines": "pipelines"},
    "switch": {"condition": "pipeline", "if_true": "pipeline", "if_false": "pipeline"},
    "filter": {"predicate": "function"},
    "flat_map": {"fn": "function"},
    "unbatch": {},
    "scan": {"step": "function", "init": "json"},
    "take_while": {"predicate": "function"},
    "drop_while": {"predicate": "function"},
    "gather": {"indices": "indices"},
    "take": {"n": "natural"},
    "skip": {"n": "natural"},
    "exclude": {"ranges": "ranges"},
    "batch": {
        "batch_size": "positive", "drop_last": "boolean", "collate": "function?", "pad": "none",
    },
    "sliding_window": {"width": "positive", "stride": "positive"},
    "group_by": {"key": "function"},
    "token_batch": {
        "max_tokens": "positive", "key": "function", "pad_to_multiple_of": "positive",
        "max_items": "positive?", "drop_longer": "boolean",
    },
    "shard_batch": {"num_shards": "positive", "index": "zero", "key": "function"},
    "dedupe": {"key": "function", "window": "positive"},
    "dedupe_bloom": {
        "key": "function", "folder": "folder", "capacity": "positive",
        "false_positive_rate": "inside", "block_size": "positive",
    },
    "take_tokens": {"tokens": "natural", "key": "function"},
    "hash_range": {
        "start": "unit", "stop": "one", "seed": "natural", "key": "keys?",
        "inverted": "boolean",
    },
    "sample": {
        "weights": "weights", "seed": "natural", "replacement": "boolean",
        "num_samples": "positive?",
    },
    "sample_balanced": {"labels": "indices", "seed": "natural", "num_samples": "positive?"},
    "oversample": {"labels": "indices", "seed": "natural"},
    "split_batch": {"n": "positive"},
    "bucket_batch": {
        "batch_size": "size", "key": "function?", "window_size": "positive",
        "boundary_key": "function?", "shuffle": "boolean", "seed": "natural?",
    },
    "bucket_by_boundaries": {
        "boundaries": "boundaries", "batch_size": "size", "key": "function",
        "drop_last": "boolean", "max_wait": "none",
    },
    "concat_then_split": {"length": "positive", "drop_last": "boolean", "pad": "padding?"},
    "pack_first_fit": {
        "length": "positive", "num_bins": "positive", "overflow": "overflow", "pad": "padding?"
    },
    "pack_best_fit": {
        "length": "positive", "num_bins": "positive", "overflow": "overflow", "pad": "padding?"
    },
    "pack_by_plan": {"plan": "plan", "pad": "padding?"},
    "shuffle": {"buffer_size": "positive?", "seed": "natural"},
    "block_shuffle": {"block_size": "positive", "seed": "natural"},
    "local_shuffle": {"window": "positive", "seed": "natural", "block_size": "positive?"},
    "repeat": {"count": "natural?"},
    "shard": {
        "num_shards": "positive", "index": "natural", "contiguous": "boolean", "remainder": "none",
        "pad": "none",
    },
    "zip": {"pipelines": "pipelines", "strict": "boolean!"},
    "concat": {"pipelines": "pipelines"},
    "interleave": {"pipelines": "pipelines", "block_length": "positive!"},
    "interleave_map": {"fn": "function", "cycle_length": "positive", "block_length": "positive"},
    "mix": {
        "pipelines": "listed", "weights": "weights!", "seed": "natural!", "stop": "stop",
        "deterministic": "boolean!",
    },
    "lanes": {"pipelines": "parts", "num_shards": "one", "index": "zero"},
    "multiplex": {"control": "pipelines", "pipelines": "listed"},
}  # fmt: skip

NUMPY_INTS = [np.int8(3), np.uint8(3), np.int64(3), np.uint64(3), np.array(3)]
GOOD: dict[str, list[Any]] = {
    "data": [[1], (1, 2), range(3), []],
    "positive": [3, 1, 10**12, *NUMPY_INTS],
    "natural": [2, 0, 10**12, *NUMPY_INTS],
    "boolean": [False, True],
    "function": [len, str.upper, int, print],
    "keys": [len, str.upper],
    "json": [0, None, "a", 1.5, [], {}, (), {"a": [1, (2, None)]}],
    "integer": [2, 0, -3, 10**12, *NUMPY_INTS],
    "anything": [3, None, [1], len],
    "none": [None],
    "parts": [(lz.source([0]),)],
    "one": [1],
    "overflow": ["error", "split"],
    "generator": ["numpy"],
    "plan": [lz.plan_packing([3], 3, seed=0)],
    "unit": [0, 0.5, 1],
    "inside": [0.5],
    "folder": ["seen"],
    "zero": [0],
    "pipeline": [lz.source([0])],
    "size": [3],
    "weights": [(1.0, 2.0)],
    "boundaries": [(3, 5)],
    "indices": [(0, 1)],
    "ranges": [((0, 1),), ()],
    "short": ["squad", "x" * 40],
    "padding": [{}, {"tokens": -100}, {"x": 0.5, "y": np.int8(1)}],
}
GOOD |= {f"{kind}?": [*values, None] for kind, values in GOOD.items()}

NO_INT: list[Any] = [
    True, False, np.True_, np.array(True), 1.0, 0.5, math.nan, math.inf,
    np.float64(2), np.array(2.0), "3", b"3", [1], (1,), {}, 2j, len, np.array([1]), object(),
]  # fmt: skip
BAD: dict[str, list[Any]] = {
    "positive?": [0, -1, np.int64(0), np.int8(-1), -(10**30), *NO_INT],
    "natural?": [-1, np.int64(-1), -(10**30), *NO_INT],
    "inside": [0, 1, 1.5, -1, "0.5", None, math.nan, True],
    "folder": ["", None, 3, [1]],
    "boolean": [None, 0, 1, np.True_, 1.0, math.nan, "True", []],
    "function?": [0, 1.0, math.nan, "len", b"len", [len], np.array(1), True],
    "keys?": [0, 1.0, math.nan, "len", b"len", {"len": 3}, np.array(1), np.zeros((1, 1)), True],
    "integer": [None, *NO_INT],
    "padding?": [0, -100, "x", ["x"], {"x": "0"}, {"x": None}, {0: 1}, [("x", 0)], len],
    "short?": ["", "x" * 41, 0, 1.0, b"squad", ["squad"], len],
    "ranges": [
        None,
        3,
        "12",
        b"12",
        (1, 2),
        [3],
        [(1, 2, 3)],
        [(1,)],
        [(1.0, 2)],
        [(True, 2)],
        ["ab"],
        [(2, 2)],
        [(5, 3)],
        [(-1, 2)],
        [(1, None)],
        [(0, 2**61)],
        [range(0, 9, 2)],
        range(3),
        [(1, 5), (4, 9)],
        [(1, 9), (2, 3)],
        [(1, 2), (1, 2)],
        [(lz.init(lz.source([1])), 3)],
    ],
    "json": [object(), {1, 2}, b"x", np.int64(1), np.zeros(2), 1j, [object()], {"a": {1}}, len],
}
BAD |= {kind: [None, *BAD[f"{kind}?"]] for kind in ("positive", "natural", "function")}


def call(name: str, /, **changed: Any) -> Any:
    arguments = {a: GOOD[kind][0] for a, kind in KINDS[name].items()}
    if name == "shard":
        arguments = {"num_shards": 10**13, "index": 0}
    return lz.registry[name].public(**arguments | changed)


def cases(name: str, values: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    """The arguments of a combinator, each with each of its values."""
    return [(arg, value) for arg, kind in KINDS[name].items() for value in values.get(kind, ())]


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(lz.ArgumentError) as caught:
        action()
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, lz.PipelineError)
    return str(caught.value)


@pytest.mark.parametrize("name", OURS)
def test_every_argument_is_in_the_table(name: str) -> None:
    parameters = lz.registry[name].signature.parameters
    named = [each for each in parameters if each != "args"]  # of a function, of any kind
    assert list(KINDS[name]) == named


def check_taken(name: str, values: dict[str, list[Any]]) -> None:
    for argument, value in cases(name, values):
        stage = call(name, **{argument: value})
        kept = stage.calls[0].arguments[argument]
        assert kept == value if not isinstance(kept, np.ndarray) else (*kept.tolist(),) == (*value,)
        if hasattr(value, "dtype"):
            assert type(kept) is int, argument


def check_refused(name: str, values: dict[str, list[Any]]) -> None:
    for argument, value in cases(name, values):
        message = refusal(lambda given={argument: value}: call(name, **given))
        assert message.startswith(f"{name}: "), (argument, value)
        assert f"{argument} must be" in message, value
        assert " ".join(repr(value).split())[:50] in message, argument


@pytest.mark.parametrize("name", KINDS)
def test_good_values_are_taken_and_bad_ones_refused(name: str) -> None:
    check_taken(name, GOOD)
    check_refused(name, BAD)


@pytest.mark.parametrize("name", [n for n, k in KINDS.items() if k.get("seed") == "natural"])
def test_a_seed_is_never_optional(name: str) -> None:
    first = {
        "block_shuffle": [3],
        "local_shuffle": [3],
        "random_map": [len],
        "hash_range": [0, 1],
        "sample": [[1]],
        "sample_balanced": [[1]],
        "oversample": [[1]],
        "random_indices": [[1]],
    }.get(name, [])
    message = refusal(lambda: lz.registry[name].public(*first))
    assert message.startswith(f"{name}: ")
    assert "'seed'" in message


@pytest.mark.parametrize("name", OURS)
def test_required_arguments_are_named(name: str) -> None:
    needed = [
        p.name
        for p in lz.registry[name].signature.parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    if needed:
        message = refusal(lambda: lz.registry[name].public())
        assert message.startswith(f"{name}: ")
        assert f"'{needed[0]}'" in message


@pytest.mark.parametrize("name", [n for n in OURS if n != "columns"])
def test_unknown_arguments_are_named(name: str) -> None:
    public = lz.registry[name].public
    make = public if name in ("zip", "concat", "interleave") else functools.partial(call, name)
    if name in ("mix", "multiplex"):
        make = functools.partial(public, [lz.source([0])], [lz.source([1])])
    if name == "case":
        make = functools.partial(public, lz.source([0]), lz.source([1]))
    assert "'colour'" in refusal(lambda: make(colour=1))


FOREIGN = {
    "drop_last": lambda: lz.batch(2, drop_remainder=True),  # type: ignore[call-arg]
    "collate": lambda: lz.batch(2, collate_fn=len),  # type: ignore[call-arg]
    "num_shards": lambda: lz.shard(world_size=2, index=0),  # type: ignore[call-arg]
    "num_shards ": lambda: lz.shard(num_replicas=2, index=0),  # type: ignore[call-arg]
    "num_shards  ": lambda: lz.shard(num_instances=2, instance_rank=0),  # type: ignore[call-arg]
    "index": lambda: lz.shard(num_shards=2, rank=0),  # type: ignore[call-arg]
    "index ": lambda: lz.shard(num_shards=2, shard_index=0),  # type: ignore[call-arg]
    "seed": lambda: lz.shuffle(seed=0, reshuffle_each_iteration=True),  # type: ignore[call-arg]
    "executor": lambda: lz.map(len, num_workers=2),  # type: ignore[call-arg]
    "executor ": lambda: lz.map(len, num_parallel_calls=2),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("ours", FOREIGN)
def test_names_from_elsewhere_are_translated(ours: str) -> None:
    assert ours.strip() in refusal(FOREIGN[ours]).partition("is called")[2]


def test_order_changing_arguments_are_keyword_only() -> None:
    for name, kinds in KINDS.items():
        parameters = lz.registry[name].signature.parameters
        for argument in {"seed", "num_shards", "index", "drop_last"} & set(kinds):
            assert parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY
    message = refusal(lambda: lz.shard(4, 0))  # type: ignore[misc]
    assert "shard(*, num_shards" in message


@pytest.mark.parametrize(("num_shards", "index"), [(1, 1), (4, 4), (4, 10**30)])
def test_a_shard_beyond_the_last(num_shards: int, index: int) -> None:
    message = refusal(lambda: lz.shard(num_shards=num_shards, index=index))
    assert f"num_shards={num_shards}" in message
    assert f"index={index}" in message


@pytest.mark.parametrize(
    ("arrays", "shown"),
    [
        ({}, "none"),
        ({"x": [1], "y": [1, 2]}, "'y': 2"),
        ({"x": np.zeros((3, 2)), "y": np.zeros((2, 3))}, "'x': 3"),
        ({"x": 3}, "3"),
        ({"x": [1], "y": None}, "None"),
        ({"x": [1], "y": np.array(7)}, "7"),
        ({"x": "abc"}, "'abc'"),
        ({"x": {"a": 1}}, "{'a': 1}"),
        ({"x": [[1], [1, 2]]}, "[[1], [1, 2]]"),
    ],
)
def test_bad_columns(arrays: dict[str, Any], shown: str) -> None:
    message = refusal(lambda: lz.columns(**arrays))
    assert message.startswith("columns: ")
    assert shown in message


@pytest.mark.parametrize("join", [lz.zip, lz.concat])
def test_bad_joins(join: Callable[..., Any]) -> None:
    good = lz.source([1])
    assert "at least one" in refusal(join)
    for bad in ([1], lz.map(len), None, len, iter([])):
        message = refusal(lambda bad=bad: join(good, bad))
        assert message.startswith(f"{join.__name__}: argument 2 ")
        assert repr(bad)[:50] in message


def test_a_source_is_no_longer_than_an_index() -> None:
    message = refusal(lambda: lz.source(range(10**30)))
    assert f"at most {sys.maxsize:,} items, got range(0, 1{'0' * 30}) (range)" in message
    assert "count()" in message
    assert len(lz.source(range(sys.maxsize))) == sys.maxsize


def test_a_permutation_needs_random_access_and_an_end() -> None:
    stream = lz.source([1]) | lz.filter(len)
    endless = lz.source([1]) | lz.repeat()
    for pipeline, why in ((stream, "no random access"), (endless, "endless")):
        message = refusal(lambda pipeline=pipeline: pipeline | lz.shuffle(seed=0))
        assert message.startswith("shuffle: ")
        assert why in message
        assert "buffer_size" in message
        assert refusal(lambda pipeline=pipeline: pipeline | (lz.map(len) | lz.shuffle(seed=0)))


@pytest.mark.parametrize("left", [lz.source([1]), lz.map(len)])
def test_what_may_follow_a_bar(left: Any) -> None:
    assert re.search(r"did you mean \| map\(.*len.*\)", refusal(lambda: left | len))
    assert "zip, concat" in refusal(lambda: left | lz.source([1]))
    for bad in (3, None, "map", [lz.map(len)], math.nan):
        message = refusal(lambda bad=bad: left | bad)
        assert repr(bad)[:30] in message
        assert "not a stage" in message


def test_a_combinator_that_was_not_called() -> None:
    message = refusal(lambda: lz.source([1]) | lz.unbatch)  # type: ignore[operator]
    assert "unbatch(" in message
    assert "map(" not in message


def test_prefetch_is_no_stage() -> None:
    with pytest.raises(AttributeError, match="pass an executor to the run instead"):
        lz.prefetch  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'shufle'"):
        lz.shufle  # noqa: B018
    assert not hasattr(lz, "prefetch")


@pytest.mark.parametrize("n", [None, 1.5, math.nan, "1", True, [1], np.float64(1)])
def test_state_at_takes_an_int(n: Any) -> None:
    message = refusal(lambda: lz.state_at(lz.source([1, 2]), n))
    assert message.startswith("state_at: n must be")
    assert repr(n) in message


STATE = lz.init(lz.source([1]))
USES: dict[str, Callable[[Any], object]] = {
    **{each.__name__: each for each in (lz.run, lz.init, lz.head, lz.profile)},
    "state_at": lambda it: lz.state_at(it, 0),
    "step": lambda it: lz.step(it, STATE),
    "advance": lambda it: lz.advance(it, STATE, 1),
    "replay": lambda it: lz.replay(it, STATE),
    "rebase": lambda it: lz.rebase(STATE, it),
    "reshard": lambda it: lz.reshard([STATE], it),
    "resume_cost": lambda it: lz.resume_cost(it, STATE),
    "trace": lambda it: lz.trace(it, 0),
    "seen": lambda it: lz.seen(it, STATE),
}


DATA: list[Any] = [[1], (1,), range(3), np.arange(3), {"a": 1}]


@pytest.mark.parametrize("not_one", [None, 3, *DATA, lz.map(len), lz.Pipeline], ids=repr)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_runs_has_to_be_a_pipeline(use: Callable[[Any], object], not_one: Any) -> None:
    message = refusal(lambda: use(not_one))
    assert "must be a Pipeline" in message
    assert repr(not_one)[:50] in message
    assert ("wrap data in source" in message) == any(not_one is data for data in DATA)


@pytest.mark.parametrize("epoch", [-1, None, "a", 1.0, True])
def test_an_epoch_is_a_natural_number(epoch: Any) -> None:
    assert "epoch" in refusal(lambda: lz.init(lz.source([1]), epoch=epoch))


@pytest.mark.parametrize("value", ["dropp", "", 1, True, b"drop", len, [], np.array(["a", "b"])])
@pytest.mark.parametrize(
    ("argument", "use"),
    [
        ("remainder", lambda value: lz.shard(num_shards=2, index=0, remainder=value)),
        ("stop", lambda value: lz.mix([lz.source([1])], [1], seed=0, stop=value)),
        ("on_error", lambda value: lz.run(lz.source([1]), on_error=value)),
    ],
)
def test_what_is_none_of_the_texts_it_may_be(argument: str, use: Any, value: Any) -> None:
    message = refusal(lambda: use(value))
    assert f"{argument} must be '" in message
    assert f"got {argument}={repr(value)[:50]}" in message


@pytest.mark.parametrize("boundaries", ["abc", "", b"abc", [(1, 2)], [[1], [2]], ["1"]])
def test_boundaries_are_numbers(boundaries: Any) -> None:
    message = refusal(lambda: lz.bucket_by_boundaries(boundaries, 2, key=len))
    assert "boundaries must be increasing numbers" in message


@pytest.mark.parametrize("size", [sys.maxsize, sys.maxsize + 1, 2**100])
@pytest.mark.parametrize("data", [[1, 2, 3], Stream([1, 2, 3])], ids=["list", "stream"])
@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument)
        for name, kinds in KINDS.items()
        for argument, kind in kinds.items()
        if kind.rstrip("?") in ("natural", "positive") and argument not in ("seed", "index")
        if name in ("take", "skip", "batch", "shuffle", "block_shuffle", "repeat", "shard")
    ],
)
def test_the_largest_number(name: str, argument: str, data: Any, size: int) -> None:
    if size > sys.maxsize and KINDS[name][argument].startswith("positive"):
        assert f"{argument}={size}" in refusal(lambda: call(name, **{argument: size}))
        return
    stage = call(name, **{argument: size})
    found = list((lz.source(data) | stage)[:3])
    whole: list[Any] = {"batch": [3], "shard": [1], "skip": []}.get(name, [1, 2, 3])
    assert (sorted(found) if "shuffle" in name else found) == whole
