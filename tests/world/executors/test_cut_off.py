"""Ranks that share work, of which one is in a network of its own that is cut off."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.sharing.meeting_place import MeetingPlace
from tests.executors.sharing.rank import SECRET, pipeline
from tests.helpers import until

HERE, THERE = "198.51.100.1", "198.51.100.2"  # of a range that is nobody's


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def network() -> Iterator[tuple[str, str]]:
    """The name of another network, and of what leads to it from here."""
    if shutil.which("ip") is None:
        pytest.skip("networks are made by ip")
    name = f"lz{os.getpid()}"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no networks: {error.stderr}")
    try:
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        ip("addr", "add", f"{HERE}/30", "dev", f"{name}a")
        ip("link", "set", f"{name}a", "up")
        ip("-n", name, "addr", "add", f"{THERE}/30", "dev", f"{name}b")
        ip("-n", name, "link", "set", f"{name}b", "up")
        yield name, f"{name}a"
    finally:
        ip("netns", "del", name)


def test_ranks_that_are_cut_off_name_each_other(network: tuple[str, str], tmp_path: Path) -> None:
    name, link = network
    command = [sys.executable, "-m", "tests.executors.sharing.rank"]
    place = MeetingPlace(HERE, SECRET, 60.0)
    ranks = []
    try:
        for rank, where in enumerate([[], ["ip", "netns", "exec", name]]):
            told = {"rank": rank, "size": 2, "port": place.port, "steps": 9999, "host": HERE}
            with (tmp_path / f"{rank}").open("w") as file:
                each = [*where, *command, json.dumps(told)]
                ranks.append(subprocess.Popen(each, stdout=file, start_new_session=True))
        until(lambda: all(len(lines(tmp_path, rank)) > 5 for rank in range(2)))
        ip("link", "set", link, "down")
        for each in ranks:
            each.wait(60)
    finally:
        place.close()
        for each in ranks:
            each.kill()
            each.wait()
    for rank in range(2):
        *items, (kind, text, _) = lines(tmp_path, rank)
        assert kind == "RankMissing", text
        assert f"rank {1 - rank}" in text
        run = lz.run(pipeline(2, rank)).with_state()
        assert items == [[repr(item), state.to_json()] for item, state in islice(run, len(items))]


def lines(folder: Path, rank: int) -> list[Any]:
    text = (folder / f"{rank}").read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
