"""For each law of shared work a fault that it catches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.sharing import agreement, executor, pool
from lazyckpt.executors.sharing.payloads import Payloads
from lazyckpt.executors.sharing.pool import SharedPool
from lazyckpt.executors.sharing.tee import Tee
from lazyckpt.executors.sharing.turns import Turns
from lazyckpt.failures.notes import Failure
from tests.executors.sharing import test_laws as laws
from tests.executors.sharing import test_payloads as payloads
from tests.executors.sharing import test_skipped as skipped
from tests.executors.sharing.ranks import Hub
from tests.helpers import until


def leaves_no_threads() -> None:
    hub, before = Hub(2), {*threading.enumerate()}
    laws.together(laws.packed(), hub, 3)
    try:
        until(lambda: not {*threading.enumerate()} - before, 1)
    finally:
        for link in hub.links:
            link.close()


def stays_in_step() -> None:
    assert (
        laws.in_lockstep(lambda rows: rows | lz.map(str), 1, [4, 1, 2], [1, 60, 3], 60) == [60] * 3
    )


LAWS: dict[str, Callable[[], None]] = {
    "same": partial(laws.test_ranks_get_what_they_get_alone, "packed", 2),
    "same that stay": partial(payloads.test_ranks_get_what_they_get_alone, "images", ()),
    "once": laws.test_processes_of_one_index,
    "elastic": partial(laws.test_a_resume_on_other_numbers_of_ranks, "packed"),
    "agreement": partial(
        laws.test_ranks_that_differ_are_refused,
        lambda: laws.kept([*range(300)]),
        lambda: laws.kept([*range(299), 7]),
        "differ",
    ),
    "errors": laws.test_an_error_comes_at_the_same_place_on_all_and_again,
    "skips": lambda: skipped.agree_on_chance("mix", Hub(4, delay=0.01)),
    "loss": partial(laws.test_the_loss_of_a_rank_is_an_error_that_names_it, 0, 1),
    "liveness": stays_in_step,
    "refusal": laws.test_what_can_not_be_shared_is_refused,
    "nothing left": leaves_no_threads,
}


def reverses(right: Any) -> Any:
    """The items of each task."""

    def opened(self: SharedPool, found: Any, link: Any) -> Any:
        outcome = right(self, found, link)
        return outcome._replace(items=[*outcome.items][::-1])

    return opened


def stands_still(right: Any) -> Any:
    return lambda self, stream, *more: (*right(self, stream, *more)[:2], stream.begin)


def makes_all(right: Any) -> Any:
    """Each rank does each task."""

    def use(self: SharedPool, link: Any) -> None:
        right(self, link)
        self._turns = Turns([link.rank])

    return use


def begins_anew(right: Any) -> Any:
    def opening(self: SharedPool, chain: Any, machine: Any) -> Any:
        opened = right(self, chain, machine)
        return opened._replace(flow=lambda position: opened.flow(machine.init(0)))

    return opening


def misquotes(right: Any) -> Any:
    def packed(key: bytes, found: Any) -> Any:
        if isinstance(found, Outcome) and found.failure is not None:
            found = found._replace(failure=Failure(ValueError("another"), ""))
        return right(key, found)

    return packed


def keeps_its_reach(right: Any) -> Any:
    def join(pool: Any, meeting: Any, told: Any, reach: Any, use: Any) -> Any:
        link = right(pool, meeting, told, reach, use)
        link.reach = reach
        return link

    return join


FAULTS: list[tuple[str, Any, str, Callable[[Any], Any], int]] = [
    ("same", SharedPool, "_opened", reverses, 0),
    ("same", Tee, "_passed", stands_still, 9),
    ("once", SharedPool, "_use", makes_all, 0),
    ("same that stay", Payloads, "_own", lambda right: lambda self, n, i: right(self, n, 0), 0),
    ("elastic", SharedPool, "opening", begins_anew, 0),
    ("agreement", agreement, "told_of", lambda right: lambda *args: {}, 0),
    ("errors", pool, "packed", misquotes, 0),
    ("skips", SharedPool, "_use", makes_all, 0),
    ("loss", SharedPool, "_leave", lambda right: lambda self, *to: right(self, *to[:2], "left"), 0),
    ("liveness", pool, "join", keeps_its_reach, 0),
    ("refusal", executor, "check_dealt", lambda right: lambda *args: None, 0),
    ("nothing left", SharedPool, "_hang_up", lambda right: lambda self: None, 0),
]


@pytest.mark.parametrize(("law", "owner", "name", "wrong", "per_node"), FAULTS)
def test_the_law_catches_it(
    law: str,
    owner: Any,
    name: str,
    wrong: Callable[[Any], Any],
    per_node: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Hub, "per_node", per_node)
    monkeypatch.setattr(Hub, "patience", 2.0)
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        LAWS[law]()


def test_every_law_has_a_fault() -> None:
    assert {law for law, *_ in FAULTS} == LAWS.keys()
