"""Files elsewhere: an S3 server of this machine by obstore and by s3fs, and web servers."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import fsspec
import obstore
import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.io import remote, storage, time_limits
from lazyckpt.io.time_limits import fsspec_options
from tests.io.cases import folder
from tests.world.io.buckets import BUCKET, SECRET, put
from tests.world.io.faults import Proxy

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


def test_keys_are_whatever_a_bucket_allows(client: Any) -> None:
    names = ["a b", "é", "a%20b", "a#1", "a+b", "a[1]", "q{w}", "a&b", "c:d", ".hidden"]
    for name in names:
        client.put_object(Bucket=BUCKET, Key=f"odd/{name}", Body=name.encode())
    files = lz.io.files(f"s3://{BUCKET}/odd/*")
    assert sorted(lz.io.read_text(files, index_dir=folder())) == sorted(names)


def test_a_folder_is_no_file(client: Any) -> None:
    put(client, a=b"1\n", deep_er=b"2\n")
    client.put_object(Bucket=BUCKET, Key="web/", Body=b"")
    client.put_object(Bucket=BUCKET, Key="empty", Body=b"")
    assert [f.path for f in lz.io.files(f"s3://{BUCKET}/*")] == [f"s3://{BUCKET}/empty"]
    assert len(lz.io.files(f"s3://{BUCKET}/web/**")) == 2
    for path in (f"s3://{BUCKET}/web", f"s3://{BUCKET}/web/"):
        with pytest.raises(lz.ArgumentError, match=rf"{path} is a directory; write s3://.*/web/\*"):
            lz.io.files(path)


def test_a_pattern_of_one_folder_lists_nothing_below_it(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("top/a.jsonl", "top/b.jsonl", "top/deep/c.jsonl", "top.jsonl"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"1\n")
    client.put_object(Bucket=BUCKET, Key="top/deep", Body=b"")
    expected = [f"s3://{BUCKET}/top/{name}.jsonl" for name in "ab"]
    assert [*lz.io.files(f"s3://{BUCKET}/top/**").paths] == [
        *expected,
        f"s3://{BUCKET}/top/deep/c.jsonl",
    ]
    assert lz.io.files(f"s3://{BUCKET}/top/*/*.jsonl").paths == [f"s3://{BUCKET}/top/deep/c.jsonl"]
    monkeypatch.setattr(obstore, "list", None)
    assert lz.io.files(f"s3://{BUCKET}/top/*.jsonl").paths == expected
    assert lz.io.files(f"s3://{BUCKET}/top/*").paths == expected
    assert lz.io.files(f"s3://{BUCKET}/top.*").paths == [f"s3://{BUCKET}/top.jsonl"]


def test_what_is_not_there_is_named(client: Any) -> None:
    with pytest.raises(FileNotFoundError, match=f"file or directory: 's3://{BUCKET}/web/no.jsonl'"):
        lz.io.files(f"s3://{BUCKET}/web/no.jsonl")
    with pytest.raises(lz.ArgumentError, match="no file matches"):
        lz.io.files(f"s3://{BUCKET}/web/*.no")
    with pytest.raises(lz.PipelineError, match=r"s3://\*/a/\* can't be read: "):
        lz.io.files("s3://*/a/*")
    put(client, a=b"1\n")
    rows = lz.io.read_jsonl(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    client.delete_object(Bucket=BUCKET, Key="web/a.jsonl")
    with pytest.raises(lz.SourceChanged, match=f"s3://{BUCKET}/web/a.jsonl is gone since"):
        rows[0]


def test_ranges_may_be_empty(client: Any) -> None:
    put(client, a=b"012345")
    (file,) = lz.io.files(f"s3://{BUCKET}/web/a.jsonl")
    found = storage.storage_of(file.path)
    assert found.read(file, 2, 2) == b""
    assert found.read_ranges(file, [(6, 6)]) == [b""]
    assert found.read_ranges(file, [(0, 0), (1, 3), (3, 3), (4, 6)]) == [b"", b"12", b"", b"45"]


def test_an_object_that_changed_is_named(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(client, a=b"1\n2\n3\n")
    rows = lz.io.read_jsonl(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    put(client, a=b"4\n5\n6\n")
    monkeypatch.setattr(storage, "_opened", {})
    for read in (lambda: rows[1], lambda: rows.__getitems__([0, 2])):
        with pytest.raises(lz.SourceChanged, match=r"web/a\.jsonl changed .* its version was"):
            read()


def test_no_credentials_are_told(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    put(client, a=b"1\n{\n")
    caplog.set_level(logging.DEBUG)
    rows = lz.io.read_jsonl(f"s3://{BUCKET}/web/*.jsonl", index_dir=folder())
    run = lz.run(lz.source(rows))
    with pytest.raises(lz.io.RecordError) as caught:
        list(run)
    told = [repr(rows), rows.files.to_json(), run.state.to_json(), run, caught.value, caplog.text]
    assert SECRET not in "".join(map(str, [*told, *caught.value.__notes__]))
    assert SECRET.encode() not in pickle.dumps(rows)
    with lz.run(lz.source(rows), on_error="skip") as skipping:
        assert list(skipping) == [1]
    assert SECRET not in skipping.state.to_json()


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
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
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


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_web_server_is_read() -> None:
    place = folder()
    Path(place, "a.txt").write_text("a\nb\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(place))) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}"
        files = lz.io.files(f"{url}/*.txt")
        assert files == lz.io.files(f"{url}/a.txt")
        assert (files[0].size, bool(files[0].version)) == (4, True)
        assert lz.io.read_text(files, index_dir=place)[:] == ["a", "b"]
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("way", ["busy", "cut"])
def test_a_fault_that_passes_is_not_noticed(failing: Proxy, way: str) -> None:
    files = lz.io.files(f"s3://{BUCKET}/web/a.jsonl")
    rows = lz.io.read_text(files, index_dir=folder())
    failing.fail(way, 2)
    assert list(rows) == [f"{n:06}" for n in range(2000)]
    assert failing.failed == 2


def test_what_a_server_does_not_give_is_never_left_out(
    failing: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(remote._RETRY, "max_retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    rows = lz.io.read_text(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    some = rows | lz.shuffle(seed=0) | lz.take(5)
    run = lz.run(some, on_error="skip")
    given = [next(run)]
    failing.fail("busy", 1_000_000)
    with pytest.raises(lz.errors.StorageError, match=r"web/a\.jsonl can't be read"):
        next(run)
    failing.fail("busy", 0)
    assert given + list(run) == list(some)
    assert run.skipped == 0


@pytest.mark.parametrize(("way", "reason"), [("busy", "SlowDown"), ("cut", "")])
def test_a_fault_that_stays_is_an_error_that_names_the_file(
    failing: Proxy, way: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(remote._RETRY, "max_retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    rows = lz.io.read_text(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    failing.fail(way, 1_000_000)
    with pytest.raises(lz.PipelineError, match=rf"web/a\.jsonl can't be read: .*{reason}"):
        rows[0]


def test_a_fault_that_stays_is_given_up_after_so_many_tries(failing: Proxy) -> None:
    rows = lz.io.read_text(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    is_obstore = isinstance(storage.storage_of("s3://x"), remote.ObstoreStorage)
    most = 6 if is_obstore else 10
    failing.fail("busy", most - 1)
    assert rows[0] == "000000"
    failing.fail("busy", 1_000_000)
    begun = monotonic()
    with pytest.raises(lz.errors.StorageError, match=r"web/a\.jsonl can't be read"):
        rows[1999]
    assert failing.failed == most
    assert monotonic() - begun < 60


def test_what_is_set_up_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    s3 = fsspec_options("s3", {"anon": True, "config_kwargs": {"read_timeout": 1}})
    assert s3["anon"]
    assert s3["config_kwargs"]["read_timeout"] == 1
    assert s3["config_kwargs"]["retries"]["total_max_attempts"] == 2
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    assert "retries" not in fsspec_options("s3", {})["config_kwargs"]
    own = {"client_kwargs": {"timeout": 5}}
    assert fsspec_options("https", own) == own


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fsspec_options("http", {})["client_kwargs"]["timeout"].sock_read == 60
    monkeypatch.setattr(time_limits, "_READ", 0.2)
    monkeypatch.setattr(storage, "_opened", {})
    fsspec.get_filesystem_class("http").clear_instance_cache()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.txt"
        with pytest.raises(lz.errors.StorageError, match=r"a\.txt can't be read: Timeout"):
            lz.io.files(url)


class _Busy(_Quiet):
    def do_GET(self) -> None:
        self.send_error(503)

    do_HEAD = do_GET  # noqa: N815


def test_a_web_server_that_is_busy_has_lost_nothing() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Busy) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        with pytest.raises(lz.errors.StorageError, match=r"a\.txt can't be read: 503"):
            lz.io.files(f"http://127.0.0.1:{server.server_port}/a.txt")
        server.shutdown()
        serving.join()
