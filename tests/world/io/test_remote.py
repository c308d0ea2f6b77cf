"""Files elsewhere: an S3 server of this machine by obstore, and web servers."""

from __future__ import annotations

import logging
import pickle
import re
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import obstore
import pytest

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.io import remote, storage
from tests.helpers import in_fork, until
from tests.io.cases import folder, written
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
    with pytest.raises(lz.SourceChanged, match=f"s3://{BUCKET}/web/a.jsonl was removed since"):
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
    monkeypatch.setattr(storage, "opened_storages", {})
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
    for executor in (lz.threads(2), lz.processes(2), lz.processes(2, start_method="fork")):
        with lz.run(rows | lz.shuffle(seed=0) | lz.map(str), executor=executor) as run:
            assert sorted(map(int, run)) == [*range(40)]


def test_a_fork_reads_as_its_parent_does(client: Any) -> None:
    put(client, a=b"1\n2\n", b=b"3\n")
    pattern, place = f"s3://{BUCKET}/web/*.jsonl", folder()
    rows = lz.io.read_jsonl(lz.io.files(pattern, cache_dir=folder()), index_dir=place)
    assert rows[:] == [1, 2, 3]

    def read() -> bool:
        storage.opened_storages.clear()
        found = storage.storage_of(pattern)
        assert isinstance(found, remote.ForkedObstoreStorage)
        assert isinstance(storage.storage_of("gs://x"), remote.ForkedObstoreStorage)
        assert lz.io.files(pattern) == rows.files
        plain = lz.io.read_jsonl(lz.io.Files([*lz.io.files(pattern)]), index_dir=place)
        assert plain[:] == rows[:] == [1, 2, 3]
        with pytest.raises(FileNotFoundError, match=r"web/no\.jsonl"):
            lz.io.files(f"s3://{BUCKET}/web/no.jsonl")
        found.process.kill()
        with pytest.raises(lz.errors.StorageError, match=f"s3:// has died: asked to list {BUCKET}"):
            found.list(BUCKET)
        (place / "helper").write_text(str(found.process.pid))
        return len(found.list(pattern)) != 2

    assert in_fork(read) == 0
    command = Path("/proc", (place / "helper").read_text(), "cmdline")
    until(lambda: not command.exists() or not command.read_bytes())  # it has ended


ODD = ["x//y.jsonl", "../z.jsonl", "./q.jsonl", "\x01c.jsonl", "/", "a\tb.jsonl"]


@pytest.mark.parametrize("key", ODD)
def test_a_key_that_obstore_refuses_stops_no_listing(
    client: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, a=b"1\n", b=b"2\n")
    client.put_object(Bucket=BUCKET, Key=f"web/{key}", Body=b"3\n")
    files = lz.io.files(f"s3://{BUCKET}/web/[ab].jsonl")
    assert files.paths == [f"s3://{BUCKET}/web/{name}.jsonl" for name in "ab"]
    assert lz.io.read_jsonl(files, index_dir=folder())[:] == [1, 2]
    if key != "/":
        path = f"s3://{BUCKET}/web/{key}"
        with pytest.raises(lz.errors.StorageError, match=f"{path} can't be read: .*[Pp]ath"):
            list(lz.io.read_files(lz.io.files(f"s3://{BUCKET}/web/**")))
    monkeypatch.setattr(remote, "find_spec", lambda name: None)
    with pytest.raises(lz.PipelineError, match=r"can't be listed: .*; rename .* install s3fs"):
        lz.io.files(f"s3://{BUCKET}/**")


EXPIRING = """
import json, pathlib, sys, time
log = pathlib.Path(sys.argv[1])
log.write_text(log.read_text() + "x")
expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
key = f"someone-{len(log.read_text())}"
print(json.dumps({"Version": 1, "AccessKeyId": key, "SecretAccessKey": "b", "Expiration": expires}))
"""


def test_credentials_that_expire_are_renewed(
    failing: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program, as AWS's own tools know it; boto3 renews what expires within minutes."""
    place = folder()
    (place / "program.py").write_text(EXPIRING)
    (place / "log").touch()
    command = f"{sys.executable} {place / 'program.py'} {place / 'log'}"
    (place / "config").write_text(f"[default]\ncredential_process = {command}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(place / "config"))
    monkeypatch.setattr(remote, "KEPT", timedelta(0))
    (file,) = lz.io.files(f"s3://{BUCKET}/web/a.jsonl")
    for start in (0, 7):
        assert storage.storage_of(file.path).read(file, start, start + 6) == b"%06d" % (start // 7)
    used = [re.findall(r"Credential=([^/]*)/", each)[0] for each in failing.signed]
    assert used[0].startswith("someone-")
    assert len({*used}) > 1


class _Web(SimpleHTTPRequestHandler):
    """Fails so many requests, and then serves a folder."""

    times = 0

    def send_head(self) -> Any:
        if type(self).times:
            type(self).times -= 1
            return self.send_error(503)
        return super().send_head()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    """The address of a web server with one file."""
    place = folder()
    Path(place, "a.txt").write_text("a\nb\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Web, directory=str(place))) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_a_web_server_is_read(web: str) -> None:
    files = lz.io.files(f"{web}/*.txt")
    assert files == lz.io.files(f"{web}/a.txt")
    assert (files[0].size, bool(files[0].version)) == (4, True)
    assert lz.io.read_text(files, index_dir=folder())[:] == ["a", "b"]


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
    monkeypatch.setitem(remote.RETRY, "max_retries", 1)
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
    monkeypatch.setitem(remote.RETRY, "max_retries", 1)
    rows = lz.io.read_text(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    failing.fail(way, 1_000_000)
    with pytest.raises(lz.PipelineError, match=rf"web/a\.jsonl can't be read: .*{reason}"):
        rows[0]


def test_a_fault_that_stays_is_given_up_after_so_many_tries(failing: Proxy) -> None:
    rows = lz.io.read_text(f"s3://{BUCKET}/web/a.jsonl", index_dir=folder())
    failing.fail("busy", 5)
    assert rows[0] == "000000"
    failing.fail("busy", 1_000_000)
    with pytest.raises(lz.errors.StorageError, match=r"web/a\.jsonl can't be read"):
        rows[1999]
    assert failing.failed == 6


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "READ_TIMEOUT", 0.2)
    monkeypatch.setattr(remote, "WAITS", [0])
    monkeypatch.setattr(storage, "opened_storages", {})
    fsspec.get_filesystem_class("http").clear_instance_cache()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.txt"
        with pytest.raises(lz.errors.StorageError, match=r"a\.txt can't be read: Timeout"):
            lz.io.files(url)


def test_a_web_server_that_is_busy_is_asked_again_and_has_lost_nothing(
    web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "WAITS", [0] * 5)
    monkeypatch.setattr(_Web, "times", 2)
    files = lz.io.files(f"{web}/a.txt")
    monkeypatch.setattr(_Web, "times", 2)
    assert lz.io.read_text(files, index_dir=folder())[:] == ["a", "b"]
    monkeypatch.setattr(_Web, "times", 1_000_000)
    with pytest.raises(lz.errors.StorageError, match=r"a\.txt can't be read: 503"):
        lz.io.files(f"{web}/a.txt")


def test_what_is_set_up_for_fsspec_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fsspec.config.conf, "http", {"client_kwargs": {"trust_env": True}})
    found = remote.FsspecStorage("http").system
    assert found.client_kwargs == {"trust_env": True}


def test_a_state_resumes_on_an_uploaded_copy(client: Any) -> None:
    local = written([b"1\n2\n", b"3\n"], ".jsonl")
    for path in local.paths:
        client.upload_file(path, BUCKET, f"web/{Path(path).name}")
    files = lz.io.files(f"s3://{BUCKET}/web/*.jsonl")
    one, other = (lz.source(lz.io.read_jsonl(each, index_dir=folder())) for each in (local, files))
    assert list(lz.run(other, lz.state_at(one, 1))) == [2, 3]
    assert list(lz.run(one, lz.state_at(other, 2))) == [3]
    client.put_object(Bucket=BUCKET, Key="web/001.jsonl", Body=b"4\n")
    edited = lz.io.read_jsonl(f"s3://{BUCKET}/web/*.jsonl", index_dir=folder())
    with pytest.raises(lz.StateMismatch, match=r"s3://.*/web/001\.jsonl isn't the file recorded"):
        lz.run(lz.source(edited), lz.state_at(one, 1))
