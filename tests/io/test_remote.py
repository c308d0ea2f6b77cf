"""Files elsewhere: an S3 server of this machine by obstore and by s3fs, and fsspec's memory."""

from __future__ import annotations

import os
import pickle
import signal
from importlib import util
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.io import remote, storage
from tests.io.buckets import BUCKET, SECRET, put
from tests.io.cases import check_reader, folder
from tests.io.faults import Proxy

pytestmark = pytest.mark.filterwarnings("ignore")  # of others' packages


def test_rows_are_read_from_a_bucket(client: Any) -> None:
    put(client, a=b"1\n2\n", b=b"3\n", deep_er=b"4\n")
    files = lz.io.files(f"s3://{BUCKET}/web/*.jsonl")
    assert [file.path for file in files] == [f"s3://{BUCKET}/web/{n}.jsonl" for n in "ab"]
    everything = lz.io.files(f"s3://{BUCKET}/**/*.jsonl")
    assert [file.size for file in everything] == [4, 2, 2]
    assert lz.io.files(everything[2].path) == everything[2:]
    rows = lz.io.read_jsonl(everything, index_dir=folder())
    assert rows[:] == list(rows) == [1, 2, 3, 4]
    assert rows.__getitems__([3, 0, 1, 3]) == [4, 1, 2, 4]
    testing.check_resume(rows | lz.shuffle(seed=0) | lz.batch(2), limit=2)


def test_what_is_not_there_is_named(client: Any) -> None:
    with pytest.raises(FileNotFoundError):
        lz.io.files(f"s3://{BUCKET}/web/no.jsonl")
    with pytest.raises(lz.ArgumentError, match="no file matches"):
        lz.io.files(f"s3://{BUCKET}/web/*.no")


def test_an_object_that_changed_is_named(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(client, a=b"1\n2\n3\n")
    rows = lz.io.read_jsonl(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    put(client, a=b"4\n5\n6\n")
    monkeypatch.setattr(storage, "_opened", {})
    for read in (lambda: rows[1], lambda: rows.__getitems__([0, 2])):
        with pytest.raises(lz.SourceChanged, match=r"web/a\.jsonl changed .* its version was"):
            read()


def test_no_credentials_are_told(client: Any) -> None:
    put(client, a=b"1\n{\n")
    rows = lz.io.read_jsonl(f"s3://{BUCKET}/web/*.jsonl", index_dir=folder())
    with pytest.raises(lz.io.RecordError) as caught:
        list(rows)
    texts = [repr(rows), rows.files.to_json(), lz.init(lz.source(rows)).to_json(), caught.value]
    assert SECRET not in "".join(map(str, texts))
    assert SECRET.encode() not in pickle.dumps(rows)


def test_workers_read_a_bucket(client: Any) -> None:
    put(client, a=b"".join(b"%d\n" % n for n in range(40)))
    rows = lz.io.read_jsonl(f"s3://{BUCKET}/web/*.jsonl", index_dir=folder())
    for executor in (lz.threads(2), lz.processes(2)):
        with lz.run(rows | lz.shuffle(seed=0) | lz.map(str), executor=executor) as run:
            assert sorted(map(int, run)) == [*range(40)]


def test_a_fork_never_uses_obstore_after_its_parent(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_opened", {})
    monkeypatch.setattr(remote, "_first_process", None)
    assert isinstance(storage.storage_of("s3://x"), remote.ObstoreStorage)
    kinds = {}
    for name in ("s3", "gs"):
        read, write = os.pipe()
        if not (child := os.fork()):
            signal.alarm(20)
            try:
                found = type(storage.storage_of(f"{name}://x")).__name__
            except lz.PipelineError as error:
                found = str(error)
            os.write(write, found.encode())
            os._exit(0)
        os.close(write)
        kinds[name] = os.read(read, 1000).decode()
        os.close(read)
        os.waitpid(child, 0)
    assert kinds["s3"] == "FsspecStorage"
    assert "start_method='spawn'" in kinds["gs"]


def test_fsspec_reads_all_else() -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.pipe({"/h6/a.txt": b"a\nb\n", "/h6/deep/b.txt": b"c"})
    files = lz.io.files("memory://h6/**/*.txt")
    assert [file.path for file in files] == ["memory:///h6/a.txt", "memory:///h6/deep/b.txt"]
    rows = lz.io.read_text(files, index_dir=folder())
    check_reader(rows, ["a", "b", "c"])
    system.pipe("/h6/a.txt", b"changed\n")
    again: lz.io.Rows[str] = lz.io.read_text(files[1:], index_dir=folder())
    assert again[:] == ["c"]
    with pytest.raises(lz.SourceChanged, match=r"a\.txt changed"):
        lz.io.read_text(files, index_dir=folder())
    with pytest.raises(lz.ArgumentError, match="deep is a directory"):
        lz.io.files("memory://h6/deep")


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [("obstore", "s3://b/a", "s3"), ("fsspec", "memory://a", "fsspec")],
)
def test_a_missing_package_names_the_extra(
    module: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_opened", {})
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    monkeypatch.setattr(remote, "find_spec", lambda name: None if name == module else util)
    with pytest.raises(lz.PipelineError, match=rf"pip install 'lazyckpt\[{extra}\]'"):
        lz.io.files(url)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a/*.x", ["a/b.x", "a/.x"], ["a/b/c.x", "a/b.y"]),
        ("a/**/*.x", ["a/b.x", "a/b/c/d.x"], ["b/a/c.x"]),
        ("?[0-9][!a].x", ["b1c.x"], ["/1c.x", "b1a.x", "bcc.x"]),
        ("a+(b).x", [], ["aa(b).x"]),
    ],
)
def test_patterns_match_as_on_disk(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = remote._matcher(pattern)
    assert all(map(matches, yes))
    assert not any(map(matches, no))


def test_a_scheme_that_nobody_knows_is_told() -> None:
    with pytest.raises(lz.ArgumentError, match="nowhere"):
        lz.io.files("nowhere://a/b")


@pytest.mark.parametrize("way", ["busy", "cut"])
def test_a_fault_that_passes_is_not_noticed(failing: Proxy, way: str) -> None:
    files = lz.io.files(f"s3://{BUCKET}/web/a.jsonl")
    rows = lz.io.read_text(files, index_dir=folder())
    failing.fail(way, 2)
    assert list(rows) == [f"{n:06}" for n in range(2000)]
    assert failing.failed == 2


def test_a_fault_that_stays_is_an_error_that_names_the_file(
    failing: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(remote._RETRY, "max_retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    rows = lz.io.read_text(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    failing.fail("busy", 1_000_000)
    with pytest.raises(lz.PipelineError, match=r"web/a\.jsonl can't be read: .*SlowDown"):
        rows[0]
