"""The docstrings of combinators: Google style, and what they say is what the machines do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.core.machine import Machine
from lazyckpt.pipeline import Pipeline
from lazyckpt.testing.laws import Stream
from tests.docstrings import FACTS, Docstring, named, parsed, sentence

Made = Callable[[Pipeline[Any]], Pipeline[Any]]  # over a source

# Each with the arguments that it needs, and no more.
PLAIN: dict[str, Made] = {
    "balanced": lambda p: p | lz.balanced([0, 1, 0, 1], seed=0),
    "batch": lambda p: p | lz.batch(2),
    "block_shuffle": lambda p: p | lz.block_shuffle(2, seed=0),
    "bucket_batch": lambda p: p | lz.bucket_batch(2, key=abs, window_size=4, seed=0),
    "bucket_by_boundaries": lambda p: p | lz.bucket_by_boundaries([2], 2, length=abs),
    "cache": lambda p: p | lz.cache(2),
    "case": lambda p: lz.case(p | lz.map(lambda x: x % 2), p, p),
    "columns": lambda _: lz.columns(x=[1, 2, 3]),
    "concat": lambda p: lz.concat(p, p),
    "concat_then_split": lambda p: p | lz.concat_then_split(2),
    "count": lambda _: lz.count(),
    "dedupe": lambda p: p | lz.dedupe(abs, window=2),
    "drop_while": lambda p: p | lz.drop_while(bool),
    "enumerate": lambda p: p | lz.enumerate(),
    "filter": lambda p: p | lz.filter(bool),
    "flat_map": lambda p: p | lz.flat_map(range),
    "flat_scan": lambda p: p | lz.flat_scan(lambda state, item: (state, [item]), 0),
    "gather": lambda p: p | lz.gather([1, 0]),
    "group_by": lambda p: p | lz.group_by(bool),
    "hash_range": lambda p: p | lz.hash_range(0, 0.5, seed=0),
    "interleave": lambda p: lz.interleave(p, p),
    "interleave_map": lambda p: p | lz.interleave_map(range, cycle_length=2),
    "lanes": lambda p: lz.lanes([p, p], num_shards=1, index=0),
    "limit": lambda p: p | lz.limit(9, key=abs),
    "local_shuffle": lambda p: p | lz.local_shuffle(2, seed=0, block_size=2),
    "map": lambda p: p | lz.map(str),
    "mix": lambda p: lz.mix([p, p], [1, 1], seed=0),
    "multiplex": lambda p: lz.multiplex(p, [p, p]),
    "once": lambda _: lz.once(1),
    "oversample": lambda p: p | lz.oversample([0, 1, 0, 1], seed=0),
    "pack_best_fit": lambda p: p | lz.pack_best_fit(4, num_bins=2),
    "pack_by_plan": lambda p: p | lz.pack_by_plan(lz.plan_packing([1, 2, 3, 4], 4, seed=0)),
    "pack_first_fit": lambda p: p | lz.pack_first_fit(4, num_bins=2),
    "random_floats": lambda _: lz.random_floats(seed=0),
    "random_indices": lambda _: lz.random_indices([1, 2], seed=0),
    "random_map": lambda p: p | lz.random_map(lambda rng, item: item, seed=0),
    "repeat": lambda p: p | lz.repeat(),
    "sample": lambda p: p | lz.sample([1, 2, 3, 4], seed=0),
    "scan": lambda p: p | lz.scan(lambda state, item: (state, item), 0),
    "shard": lambda p: p | lz.shard(num_shards=2, index=0),
    "shard_batch": lambda p: p | lz.batch(2) | lz.shard_batch(num_shards=2, index=0, key=abs),
    "shuffle": lambda p: p | lz.shuffle(seed=0),
    "skip": lambda p: p | lz.skip(1),
    "sliding_window": lambda p: p | lz.sliding_window(2),
    "source": lambda p: p,
    "split_batch": lambda p: p | lz.split_batch(2),
    "starmap": lambda p: p | lz.starmap(str),
    "switch": lambda p: lz.switch(p, p, p),
    "take": lambda p: p | lz.take(1),
    "take_while": lambda p: p | lz.take_while(bool),
    "tap": lambda p: p | lz.tap(str),
    "token_batch": lambda p: p | lz.token_batch(4, key=abs),
    "unbatch": lambda p: p | lz.unbatch(),
    "unfold": lambda _: lz.unfold(lambda state: None, 0),
    "without": lambda p: p | lz.without([(1, 2)]),
    "zip": lambda p: lz.zip(p, p),
}

# With what stands in the docstring where that makes a difference.
OTHERWISE: list[tuple[str, Made, str]] = [
    ("batch", lambda p: p | lz.batch(2, drop_last=True, collate=lz.stack), "drop_last"),
    (
        "bucket_batch",
        lambda p: p | lz.bucket_batch(2, key=None, window_size=4, shuffle=False),
        "shuffle",
    ),
    (
        "bucket_by_boundaries",
        lambda p: p | lz.bucket_by_boundaries([2], 2, length=abs, max_wait=5),
        "max_wait",
    ),
    ("concat_then_split", lambda p: p | lz.concat_then_split(2, drop_last=True), "drop_last"),
    ("flat_scan", lambda p: p | lz.flat_scan(lambda s, x: (s, [x]), 0, lambda s: [s]), "flush"),
    ("hash_range", lambda p: p | lz.hash_range(0, 0.5, seed=0, by=str), "with `by`"),
    ("interleave", lambda p: lz.interleave(p, p, block_length=2), "block_length"),
    ("map", lambda p: p | lz.map(lambda x: x, vectorized=True), "vectorized"),
    ("mix", lambda p: lz.mix([p, p], [1, 1], deterministic=True), "with `deterministic`"),
    ("mix", lambda p: lz.mix([p, p], [1, 1], seed=0, stop="never"), "stop"),
    ("repeat", lambda p: p | lz.repeat(2), "count"),
    ("shard", lambda p: p | lz.shard(num_shards=2, index=0, contiguous=True), "with `contiguous`"),
    ("shard", lambda p: p | lz.shard(num_shards=2, index=0, remainder="repeat"), "remainder"),
    ("shuffle", lambda p: p | lz.shuffle(4, seed=0), "with a buffer"),
    ("sliding_window", lambda p: p | lz.sliding_window(2, stride=3), "stride"),
    ("zip", lambda p: lz.zip(p, p, strict=True), "strict"),
]

DATA = {"a list": [1, 2, 3, 4], "an iterable": Stream([1, 2, 3, 4])}


def machines(made: Made) -> dict[str, Machine[Any]]:
    """What it builds over a list and over an iterable, where it can."""
    found = {}
    for name, data in DATA.items():
        try:
            found[name] = made(lz.source(data)).machine
        except lz.ArgumentError:
            assert name != "a list"
    return found


def form(docstring: Docstring, function: Callable[..., Any]) -> Iterator[str]:
    """What is not Google style, or missing."""
    lines = docstring.text.splitlines()
    if not docstring.summary.endswith(".") or len(lines) < 2 or lines[1]:
        yield "the first line is no sentence of its own"
    parameters = [*inspect.signature(function).parameters]
    if named(docstring.sections.get("Args", "")) != parameters:
        yield f"Args: are not {parameters}"
    known = ["Args", "Raises", *FACTS, "Memory", "Source"]
    if (order := [*docstring.sections]) != [name for name in known if name in order]:
        yield f"the sections are {order}"
    yield from (f"no section {fact}:" for fact in FACTS if fact not in docstring.sections)
    if "\n>>> " not in docstring.text:
        yield "no doctest"


def facts(docstring: Docstring, built: dict[str, Machine[Any]]) -> Iterator[str]:
    """What it says of state and random access that is not so."""
    says_none = docstring.sections["State"].startswith("None")
    access = sentence(docstring.sections["Random access"]).split()[0].rstrip(";,")
    if access not in ("Yes", "Kept", "No", "Where", "With"):
        yield f"Random access: begins with {access}"
    for over, machine in built.items():
        if says_none == machine.owns:
            yield f"State: but over {over} it owns {'a' if machine.owns else 'no'} part"
        expected = {
            "Yes": True,
            "Kept": over == "a list",
            "Where": over == "a list",
        }.get(access, False)
        if expected != (machine.skip is not None):
            yield f"Random access: is not so over {over}"


@pytest.mark.parametrize("name", lz.registry)
def test_the_docstring_is_google_style_and_true(name: str) -> None:
    public = lz.registry[name].public
    docstring = parsed(public)
    assert list(form(docstring, public)) == []
    assert list(facts(docstring, machines(PLAIN[name]))) == []


@pytest.mark.parametrize(
    ("name", "made", "phrase"), OTHERWISE, ids=[f"{name}-{phrase}" for name, _, phrase in OTHERWISE]
)
def test_what_depends_on_arguments_is_said(name: str, made: Made, phrase: str) -> None:
    assert list(unsaid(parsed(lz.registry[name].public), PLAIN[name], made, phrase)) == []


def unsaid(docstring: Docstring, plain: Made, other: Made, phrase: str) -> Iterator[str]:
    """The facts that differ without the phrase that says so."""
    one, two = (machines(made)["a list"] for made in (plain, other))
    differ = {
        "State": one.owns != two.owns,
        "Random access": (one.skip is None) != (two.skip is None),
    }
    for fact, differs in differ.items():
        if differs and phrase not in sentence(docstring.sections[fact]).lower():
            yield fact


TOLD = """One line.

Args:
    n: An int.

State:
    None.

Resume:
    Re-reads nothing.

Random access:
    Kept.

Rank-free:
    Yes.

>>> 1
1
"""


def written(text: str) -> Callable[[int], None]:
    def function(n: int) -> None: ...

    function.__doc__ = text
    return function


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("One line.", "One line", "the first line"),
        ("One line.\n", "One line.\nAnd one.\n", "the first line"),
        ("    n: An int.", "    m: An int.", "Args:"),
        ("    n: An int.", "    n: An int.\n    k: An int.", "Args:"),
        ("Args:\n    n: An int.\n\n", "", "Args:"),
        ("Resume:", "Resumes:", "no section Resume"),
        ("Rank-free:\n    Yes.\n", "", "no section Rank-free"),
        ("State:", "Memory:", "the sections are"),
        (">>> 1", "1", "no doctest"),
    ],
)
def test_bad_form_is_noticed(old: str, new: str, fault: str) -> None:
    assert list(form(parsed(written(TOLD)), written(TOLD))) == []
    bad = written(TOLD.replace(old, new))
    assert any(each.startswith(fault) for each in form(parsed(bad), bad))


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("take", "None.", "None.", "State: but over a list it owns a part"),
        ("batch", "None.", "A count.", "State: but over a list it owns no part"),
        ("batch", "Kept.", "No.", "Random access: is not so over a list"),
        ("batch", "Kept.", "Yes.", "Random access: is not so over an iterable"),
        ("filter", "Kept.", "Yes.", "Random access: is not so over a list"),
        ("filter", "Kept.", "Perhaps.", "Random access: begins with Perhaps"),
    ],
)
def test_what_is_not_so_is_noticed(name: str, old: str, new: str, fault: str) -> None:
    found = facts(parsed(written(TOLD.replace(old, new))), machines(PLAIN[name]))
    assert fault in list(found)


def test_what_is_unsaid_is_noticed() -> None:
    cases = {(name, phrase): made for name, made, phrase in OTHERWISE}
    for name, phrase, facts in (
        ("shard", "with `contiguous`", ["State"]),
        ("mix", "with `deterministic`", ["Random access"]),
    ):
        docstring = parsed(written(TOLD))
        assert list(unsaid(docstring, PLAIN[name], cases[name, phrase], phrase)) == facts
