"""Files elsewhere, without a server: fsspec's memory, and what paths and options say."""

from __future__ import annotations

from typing import Any

import fsspec
import pytest

import lazyckpt as lz
from lazyckpt.io import remote
from tests.io.cases import check_reader, folder

SECRET = "no-one-may-see"


@pytest.mark.parametrize(
    "url", ["s3://me:{}@bucket/*", "https://me:{}@server/a/b.txt", "https://{}@server/a/b.txt"]
)
def test_a_password_in_a_path_is_refused_and_not_told(url: str) -> None:
    for read in (lz.io.files, lambda path: list(lz.io.iter_text(path))):
        with pytest.raises(lz.ArgumentError, match=r"@(bucket|server) has a password") as caught:
            read(url.format(SECRET))
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("query", ["X-Amz-Date=1&X-Amz-Signature={}", "sig={}", "t%2Fn={}/x"])
def test_a_signature_in_a_url_is_refused_and_not_told(query: str) -> None:
    url = f"https://server/a/b.jsonl.gz?{query}".format(SECRET)
    for read in (lz.io.files, lambda path: list(lz.io.iter_text(path))):
        with pytest.raises(lz.ArgumentError, match=r"https://server/a/b.jsonl.gz\?\.\.\. has") as c:
            read(url)
        assert SECRET not in str(c.value)


def test_fsspec_reads_all_else() -> None:
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


def test_files_in_memory_are_those_of_one_process() -> None:
    fsspec.filesystem("memory").pipe("/own/a.txt", b"a\n" * 9)
    rows = lz.io.read_text("memory://own/a.txt", index_dir=folder())
    spawned = lz.processes(start_method="spawn")
    with (
        lz.run(rows | lz.map(str.upper), executor=spawned) as run,
        pytest.raises(lz.SourceChanged, match=r"a\.txt was removed .*memory belongs to one"),
    ):
        list(run)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a/*.x", ["a/b.x", "a/.x"], ["a/b/c.x", "a/b.y"]),
        ("a/**/*.x", ["a/b.x", "a/b/c/d.x"], ["b/a/c.x"]),
        ("?[0-9][!a].x", ["b1c.x"], ["/1c.x", "b1a.x", "bcc.x"]),
        ("a+(b).x", [], ["aa(b).x"]),
        ("a/**", ["a/b", "a/b/c"], ["b/a"]),
        ("a**/b", ["a/b", "ac/b"], ["ab", "a/c/b"]),
    ],
)
def test_patterns_match_as_on_disk(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = remote.matcher(pattern)
    assert all(map(matches, yes))
    assert not any(map(matches, no))


def test_a_scheme_that_nobody_knows_is_told() -> None:
    with pytest.raises(lz.ArgumentError, match="nowhere"):
        lz.io.files("nowhere://a/b")


class _Lookup(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system that finds nothing, by a look-up that fails."""

    def info(self, path: str, **_: Any) -> Any:
        try:
            return {}[path]
        except KeyError as error:
            raise FileNotFoundError(path) from error


def test_a_file_that_is_not_there_is_that_whatever_the_cause() -> None:
    fsspec.register_implementation("lookup", _Lookup, clobber=True)
    with pytest.raises(FileNotFoundError, match="file or directory: 'lookup://a/b'"):
        lz.io.files("lookup://a/b")


class _Answering(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system that fails as Azure's, whose answers have lines of numbers and times."""

    def info(self, path: str, **_: Any) -> Any:
        message = "The container does not exist.\nRequestId:3e76983f\nTime:2026-11-27T06:09:51Z"
        answer = f"<Error><Code>ContainerNotFound</Code><Message>{message}</Message></Error>"
        raise OSError(f"404 Not Found: \n{answer}\n\nDebug source:")


def test_what_a_server_answers_is_told_in_one_line() -> None:
    fsspec.register_implementation("answering", _Answering, clobber=True)
    message = "404 Not Found: ContainerNotFound: The container does not exist."
    with pytest.raises(lz.errors.StorageError, match=f"{message}$"):
        lz.io.files("answering://a/b")
