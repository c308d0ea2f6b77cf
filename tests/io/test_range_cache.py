"""The cache of ranges: each range is fetched once, by one reader, within a limit."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io import range_cache
from lazyckpt.io.range_cache import RangeCache
from tests.helpers import printed
from tests.io.cases import folder, is_killed

CONTENT = bytes(range(256)) * 4


class Fetch:
    """Gives ranges of some content, and notes them."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content, self.asked = content, []  # type: ignore[var-annotated]

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        self.asked += ranges
        return [self.content[start:stop] for start, stop in ranges]

    @property
    def nbytes(self) -> int:
        return sum(stop - start for start, stop in self.asked)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_cache, "BLOCK", 100)


def kept(cache: RangeCache) -> list[Path]:
    return [path for path in Path(cache.folder).rglob("*") if path.is_file()]


def nbytes(cache: RangeCache) -> int:
    return sum(path.stat().st_size for path in kept(cache))


SPANS = st.tuples(st.integers(0, 1024), st.integers(0, 1024)).map(sorted).map(tuple)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(SPANS, max_size=4)), max_size=6),
    st.integers(100, 5000),
)
def test_ranges_are_those_of_the_file_and_the_bound_holds(reads: Any, most: int) -> None:
    usual, range_cache.BLOCK = range_cache.BLOCK, 100
    try:
        cache = RangeCache(str(folder()), most)
        files = {"a": Fetch(), "b": Fetch(CONTENT[::-1][:1000])}
        for name, spans in reads:
            fetch = files[name]
            spans = [(min(a, len(fetch.content)), min(b, len(fetch.content))) for a, b in spans]
            found = cache.read_ranges(name, len(fetch.content), spans, fetch)
            assert found == [fetch.content[start:stop] for start, stop in spans]
            assert nbytes(cache) <= most
        if most >= 16 * 2100:
            assert all(fetch.nbytes <= len(fetch.content) for fetch in files.values())
    finally:
        range_cache.BLOCK = usual


@pytest.mark.usefixtures("small")
def test_a_block_is_fetched_once() -> None:
    cache, fetch = RangeCache(str(folder()), 10_000), Fetch()
    for _ in range(2):
        assert cache.read_ranges("a", 1024, [(150, 420), (1000, 1024)], fetch) == [
            CONTENT[150:420],
            CONTENT[1000:],
        ]
    assert fetch.asked == [(100, 200), (200, 300), (300, 400), (400, 500), (1000, 1024)]
    again: RangeCache = pickle.loads(pickle.dumps(cache))
    assert again.read_ranges("a", 1024, [(0, 101)], fetch) == [CONTENT[:101]]
    assert fetch.asked[5:] == [(0, 100)]


@pytest.mark.usefixtures("small")
def test_what_was_not_used_for_longest_gives_way() -> None:
    cache, fetch = RangeCache(str(folder()), 300), Fetch()
    for number, start in enumerate((0, 100, 200)):
        cache.read_ranges("a", 1024, [(start, start + 1)], fetch)
        for path in kept(cache):
            if path.stat().st_mtime_ns > 10**12:  # it was just written
                os.utime(path, ns=(number, number))
    cache.read_ranges("a", 1024, [(0, 1)], fetch)
    cache.read_ranges("a", 1024, [(900, 901)], fetch)
    assert sorted(int(path.suffix[1:]) for path in kept(cache)) == [0, 2, 9]


@pytest.mark.usefixtures("small")
def test_a_block_that_is_cut_is_fetched_anew() -> None:
    cache, fetch = RangeCache(str(folder()), 1000), Fetch()
    cache.read_ranges("a", 1024, [(0, 1)], fetch)
    (path,) = kept(cache)
    os.truncate(path, 50)
    assert cache.read_ranges("a", 1024, [(20, 90)], fetch) == [CONTENT[20:90]]
    assert fetch.asked == [(0, 100)] * 2


@pytest.mark.usefixtures("small")
def test_one_fetches_while_others_wait() -> None:
    cache, fetch, begun = RangeCache(str(folder()), 1000), Fetch(), threading.Event()
    others = [threading.Thread(target=lambda: read(fetch)) for _ in range(4)]
    found = []

    def read(fetch: Any) -> None:
        found.append(cache.read_ranges("a", 1024, [(50, 350)], fetch))

    def slow(ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        begun.set()
        for other in others:
            other.start()
        return fetch(ranges)

    read(slow)
    assert begun.is_set()
    for other in others:
        other.join()
    assert found == [[CONTENT[50:350]]] * 5
    assert fetch.asked == [(start, start + 100) for start in range(0, 400, 100)]


def read_all(cache: RangeCache, fetch: Fetch) -> None:
    for start in range(0, 1000, 100):
        cache.read_ranges("a", 1024, [(start, start + 100)], fetch)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("when", ["before", "after", "amid"])
def test_a_kill_leaves_whole_blocks_within_the_bound(when: str) -> None:
    for number in range(1, 5):
        cache, fetch = RangeCache(str(folder()), 300), Fetch()
        assert is_killed(partial(read_all, cache, fetch), number, when)
        assert nbytes(cache) <= 300
        for start in range(0, 1000, 70):
            part = start, start + 70
            assert cache.read_ranges("a", 1024, [part], fetch) == [CONTENT[slice(*part)]]
            assert nbytes(cache) <= 300
        assert not [path for path in kept(cache) if path.suffix == ".tmp"]


def test_without_room_it_is_read_and_not_kept() -> None:
    """A limit on the size of files stands for a full disk."""
    place = folder()
    code = f"""
import resource, signal
from lazyckpt.io.range_cache import RangeCache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
cache = RangeCache({str(place)!r}, 1 << 24)
print(cache.read_ranges("a", 50_000, [(49_998, 50_000)], lambda ranges: [b"x" * 50_000]))
"""
    assert printed(code) == "[b'xx']\n"
    assert not [path for path in place.rglob("*") if path.is_file()]


def test_a_folder_that_can_not_be_written_is_named() -> None:
    place = folder()
    cache, fetch = RangeCache(str(place), 1 << 24), Fetch()
    (place / f"{cache.sets}x{cache.ways}").touch()
    with pytest.raises(lz.PipelineError, match=f"the cache can't be written to {place}.*cache_dir"):
        cache.read_ranges("a", 1024, [(0, 1)], fetch)


@pytest.mark.parametrize("size", [0, (1 << 20) - 1, "1 GB"])
def test_a_bound_below_one_block_is_refused(size: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(lz.ArgumentError, match="files: cache_bytes must be an int >= 1048576"):
        lz.io.files(f"{tmp_path}/a.txt", cache_dir=tmp_path / "cache", cache_bytes=size)


def test_a_listing_is_the_same_with_a_cache(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    plain = lz.io.files(f"{tmp_path}/a.txt")
    found = lz.io.files(f"{tmp_path}/a.txt", cache_dir=tmp_path / "cache")
    assert (found, hash(found), repr(found)) == (plain, hash(plain), repr(plain))
    assert found.to_json() == plain.to_json()
    assert found[0].cache == pickle.loads(pickle.dumps(found))[0].cache == found[:1][0].cache
    assert (plain[0].cache, lz.io.Files.from_json(found.to_json())[0].cache) == (None, None)
    assert lz.io.read_text(found, index_dir=folder())[:] == ["a"]  # of this machine, not kept
    assert [*(tmp_path / "cache").iterdir()] == []
