"""The cache of ranges before an S3 server."""

from __future__ import annotations

from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.io import range_cache
from tests.io.cases import folder
from tests.world.io.buckets import BUCKET, put
from tests.world.io.faults import Proxy

pytestmark = pytest.mark.filterwarnings("ignore")  # of others' packages


def asked(server: Proxy) -> int:
    """The number of bytes requested from objects."""
    spans = [read.removeprefix("bytes=").split("-") for read in server.reads]
    return sum(int(last) - int(first) + 1 for first, last in spans)


def test_a_server_is_asked_once_for_each_byte(
    failing: Proxy, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_cache, "BLOCK", 1000)
    texts = [f"{n:06}" for n in range(1000)]
    put(client, b="".join(f"{text}\n" for text in texts).encode())
    place, cache = folder(), folder()
    paths = f"s3://{BUCKET}/web/b.jsonl"
    rows = lz.io.read_text(lz.io.files(paths, cache_dir=cache), index_dir=place)
    assert rows[:] == texts
    assert asked(failing) == 7000
    for some in (rows, lz.io.read_text(lz.io.files(paths, cache_dir=cache), index_dir=folder())):
        assert list(some | lz.shuffle(seed=0) | lz.shuffle(seed=1)) != texts
        assert some.__getitems__([3, 999, 500]) == [texts[3], texts[999], texts[500]]
    assert asked(failing) == 7000
    lz.io.read_text(paths, index_dir=place)[:]
    assert asked(failing) == 14_000


def test_workers_share_what_one_fetched(
    failing: Proxy, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_cache, "BLOCK", 1000)
    put(client, b="".join(f"{n:06}\n" for n in range(1000)).encode())
    files = lz.io.files(f"s3://{BUCKET}/web/b.jsonl", cache_dir=folder())
    rows = lz.io.read_text(files, index_dir=folder())
    failing.reads.clear()
    fresh = lz.io.read_text(files.cached(folder()), index_dir=rows.row_index.folder)
    with lz.run(fresh | lz.shuffle(seed=0) | lz.map(int), executor=lz.processes(2)) as run:
        assert sorted(run) == [*range(1000)]
    assert asked(failing) == 7000
