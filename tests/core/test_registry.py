"""The registry: combinators are found whether their modules are imported yet or not."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.core.registry import Registry

LATE = "import sys, lazyckpt as lz; shuffle = 'lazyckpt.combinators.shuffle'; "


def said(code: str) -> str:
    """The output of a new interpreter in which no stage is imported yet."""
    command = [sys.executable, "-c", LATE + code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('shuffle' in lz.registry, shuffle in sys.modules)", "True True"),
        ("print('stack' in lz.registry, 'nothing' in lz.registry)", "False False"),
        ("print(lz.registry['shuffle'].public is lz.shuffle)", "True"),
        ("lz.zip; print([*lz.registry][:3])", "['batch', 'block_shuffle', 'bucket_batch']"),
        ("print(len(lz.registry) == len([*lz.registry]) > 40)", "True"),
    ],
)
def test_a_combinator_is_found_before_its_module_is_imported(code: str, expected: str) -> None:
    assert said(code) == expected


def test_a_name_that_one_of_ours_has_is_refused_though_ours_is_not_imported() -> None:
    code = """
try:
    @lz.combinator()
    def shuffle(upstream): return upstream
except lz.PipelineError as error: print(error)
"""
    assert "named shuffle already exists, from lazyckpt.combinators.shuffle" in said(code)


def test_a_pickle_finds_its_combinators() -> None:
    pipeline = lz.source([3, 1, 2]) | lz.shuffle(seed=0) | lz.repeat(2)
    text = pickle.dumps(pipeline).hex()
    code = f"import pickle; print(list(pickle.loads(bytes.fromhex({text!r}))))"
    assert said(code) == str(list(pipeline))


def test_what_is_added_may_be_taken_away() -> None:
    registry = Registry()
    registry["own"] = lz.registry["map"]
    assert [*registry] == ["own"]
    del registry["own"]
    assert "own" not in registry
    assert len(registry) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"functions": {"kye": "look"}}, "there is no argument 'kye'"),
        ({"functions": {"key": "looks"}}, "'looks' is not a role of key"),
        ({"unrecorded": ("kye",)}, "there is no argument 'kye'"),
    ],
)
def test_a_combinator_that_names_what_it_lacks_is_refused(options: Any, message: str) -> None:
    def keyed(upstream: Any, key: Any) -> Any:
        return upstream

    with pytest.raises(lz.ArgumentError, match=f"keyed: {message}"):
        lz.combinator(registered=False, **options)(keyed)


@pytest.mark.parametrize("found", [None, 5, lz.map(str)])
def test_what_makes_no_machine_is_named(found: Any) -> None:
    def nothing(upstream: Any) -> Any:
        return found

    stage = lz.combinator(registered=False)(nothing)
    with pytest.raises(lz.PipelineError, match="nothing: its function must return a machine"):
        lz.run(lz.source([1]) | stage())
