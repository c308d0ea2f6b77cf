"""States in files: whole ones, whatever happens."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from tests.helpers import IS_DEEP

NUMBERS = lz.source(range(10**9)) | lz.shuffle(seed=0) | lz.batch(2)


def at(items: int) -> lz.State:
    return lz.state_at(NUMBERS, items)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["path", "str", "url", "memory"])
def place(request: Any, tmp_path: Path) -> Iterator[Any]:
    """Somewhere to save to."""
    path = tmp_path / "state.json"
    places = {"path": path, "str": str(path), "url": path.as_uri()}
    yield places.get(request.param, "memory://folder/state.json")
    import_module("fsspec").filesystem("memory").store.clear()


def test_what_is_saved_is_loaded(place: Any) -> None:
    run = lz.run(NUMBERS)
    lz.save(run, place)
    assert lz.load(place) == lz.init(NUMBERS)
    item = next(run)
    lz.save(run.state, place)
    assert lz.load(place) == run.state
    resumed = lz.run(NUMBERS, lz.load(place))
    assert [item, next(resumed)] == [NUMBERS[0], NUMBERS[1]]


def test_previous_ones_stay(place: Any) -> None:
    for items in range(5):
        lz.save(at(items), place, keep=2)
    assert [lz.load(f"{place}{end}").items for end in ("", ".1", ".2")] == [4, 3, 2]
    with pytest.raises(FileNotFoundError):
        lz.load(f"{place}.3")
    lz.save(at(5), place)
    assert [lz.load(f"{place}{end}").items for end in ("", ".1", ".2")] == [5, 4, 2]
    lz.save(at(6), place, keep=0)
    assert [lz.load(f"{place}{end}").items for end in ("", ".1", ".2")] == [6, 4, 2]
    lz.save(at(6), place)  # once more the same: the previous save is unchanged
    assert [lz.load(f"{place}{end}").items for end in ("", ".1", ".2")] == [6, 4, 2]


def test_a_torn_one_pushes_no_other_out(place: Any) -> None:
    for items in range(3):
        lz.save(at(items), place, keep=2)
    spoil(f"{place}.1", b"torn")
    lz.save(at(3), place, keep=2)
    assert [lz.load(f"{place}{end}").items for end in ("", ".1", ".2")] == [3, 2, 0]
    lz.save(at(4), place, keep=2)
    assert [lz.load(f"{place}{end}").items for end in ("", ".1", ".2")] == [4, 3, 2]


def spoil(place: Any, content: bytes) -> None:
    with import_module("fsspec").open(str(place), "wb") as file:
        file.write(content)


def test_a_torn_file_names_itself_and_the_one_before(place: Any) -> None:
    lz.save(at(1_000), place, keep=3)
    lz.save(at(2_000), place, keep=3)
    lz.save(at(3_000), place, keep=3)
    spoil(place, at(3_000).to_json().encode()[:-9])
    with pytest.raises(
        lz.InvalidState, match=r"state\.json: not a state.* state, after 2,000 items"
    ) as e:
        lz.load(place)
    named = str(e.value).rpartition("lz.load(")[2]
    assert lz.load(named.strip("')")) == at(2_000)
    spoil(f"{place}.1", b"")
    with pytest.raises(lz.InvalidState, match=r"state, after 1,000 items, .*\.2'"):
        lz.load(place)
    lz.save(at(4_000), place, keep=3)  # which keeps no torn one
    assert [lz.load(f"{place}{end}").items for end in ("", ".2")] == [4000, 1000]


@given(st.data())
def test_cut_off_at_any_length(data: st.DataObject) -> None:
    text = at(7).to_json().encode()
    content = text[: data.draw(st.integers(0, len(text) - 1))]
    content += b"\0" * data.draw(st.integers(0, 4096))  # as some file systems have it
    spoil("memory://cut.json", content)
    with pytest.raises(lz.InvalidState, match=r"memory:///?cut\.json: .*no previous whole state"):
        lz.load("memory://cut.json")


def test_no_state_at_all(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with pytest.raises(FileNotFoundError):
        lz.load(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of zeros
    with pytest.raises(lz.InvalidState, match="too long for a state"):
        lz.load(path)
    with pytest.raises(FileNotFoundError, match=r"no_such'$"):
        lz.save(at(0), tmp_path / "no_such" / "state.json")
    with pytest.raises(OSError, match="is not a regular file"):
        lz.save(at(0), os.devnull)
    assert Path(os.devnull).is_char_device()


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(lz.ArgumentError, match="state must be a State or a Run, got source"):
        lz.save(NUMBERS, tmp_path)  # type: ignore[arg-type]
    for path in (3, None, b"state.json", at(0)):
        with pytest.raises(lz.ArgumentError, match="path must be a path or a URL"):
            lz.save(at(0), path)  # type: ignore[arg-type]
        with pytest.raises(lz.ArgumentError, match="path must be a path or a URL"):
            lz.load(path)  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match=r"keep must be an int >= 0, got keep=-1"):
        lz.save(at(0), tmp_path / "state.json", keep=-1)


def test_without_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    path = tmp_path / "state.json"
    lz.save(at(1), path)
    assert lz.load(path) == at(1)
    with pytest.raises(lz.PipelineError, match=r"memory://x' needs fsspec: .*lazyckpt\[fsspec\]"):
        lz.save(at(1), "memory://x")


# --- as a plain open would ---


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="no permissions there")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        (tmp_path / "plain").write_text("")
        lz.save(at(0), tmp_path / "state.json")
    mode = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == mode
    (tmp_path / "state.json").chmod(0o640)
    lz.save(at(1), tmp_path / "state.json")
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o640


@pytest.mark.skipif(os.name == "nt", reason="links want rights there")
def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "real" / "state.json")
    lz.save(at(1), tmp_path / "link.json")
    lz.save(at(2), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert names(tmp_path / "real") == ["state.json", "state.json.1"]
    assert lz.load(tmp_path / "link.json") == lz.load(tmp_path / "real" / "state.json") == at(2)


def test_in_the_folder_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lz.save(at(1), "state.json")
    assert names(tmp_path) == ["state.json"]


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="no such permissions there")
def test_a_folder_that_may_be_written_and_not_read() -> None:
    code = """
at(0)  # which imports what nobody else may read
folder = os.path.dirname(path)
os.chmod(folder, 0o300)
if os.geteuid() == 0:
    os.chown(folder, 65534, 65534)
    os.setuid(65534)
try:
    os.listdir(folder)
except PermissionError:
    for items in range(5):
        lz.save(at(items), path, keep=2)
        assert lz.load(path).items == items
    print([lz.load(path + end).items for end in (".1", ".2")])
"""
    with TemporaryDirectory() as folder:  # others may enter it, unlike pytest's
        os.chmod(folder, 0o755)
        Path(folder, "inner").mkdir()
        assert ran(code, Path(folder, "inner")) == "[3, 2]\n"


def test_a_folder_that_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def unable(descriptor: int) -> None:
        """As file systems over a network are."""
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", unable)
    for items in range(3):
        lz.save(at(items), tmp_path / "state.json")
    assert lz.load(tmp_path / "state.json").items == 2
    assert lz.load(tmp_path / "state.json.1").items == 1


# --- killed, without space, and several simultaneously ---


def ran(code: str, folder: Path) -> str:
    """The output of a Python of its own, which may fork as it has no threads."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code, str(folder / "state.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAD = """
import os, random, resource, signal, sys, time
import lazyckpt as lz

path = sys.argv[1]
numbers = lz.source(range(10**9))
pipeline = numbers | lz.shuffle(seed=0) | lz.batch(2)
at = lambda items: lz.state_at(pipeline, items)

def saving(pipe, start):
    for items in range(start, 10**9):
        lz.save(at(items), path)
        if pipe:
            os.write(pipe, b".")
            pipe = 0

def forked(start, ready=True):
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            saving(theirs, start)
        finally:
            os._exit(1)
    os.close(theirs)
    if ready:
        os.read(ours, 1)
    os.close(ours)
    return pid

def killed(pid):
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_killed_at_any_moment_while_saving(tmp_path: Path) -> None:
    code = """
last = -1
for _ in range(TIMES):
    pid = forked(last + 1)
    time.sleep(random.uniform(0, 0.01))
    killed(pid)
    found, before = lz.load(path), lz.load(path + ".1") if last > 0 else None
    assert found.items > last
    assert before is None or before.items in (found.items - 1, found.items)
    assert next(lz.run(pipeline, found)) == pipeline[found.items]
    last = found.items
print(sum(name.endswith(".tmp") for name in os.listdir(os.path.dirname(path))))
"""
    found = ran(code.replace("TIMES", "500" if IS_DEEP else "60"), tmp_path)
    assert int(found) > 0  # else no kill came amid a save


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_several_save_to_one_path_at_once(tmp_path: Path) -> None:
    code = """
pids = [forked(0), forked(10**6)]
seen, times = set(), 0
while len(seen) < 2 or times < 1000:
    seen.add(lz.load(path).items >= 10**6)
    times += 1
for pid in pids:
    killed(pid)
lz.load(path), lz.load(path + ".1")
"""
    ran(code, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="no such limit there")
def test_all_of_them_may_be_kept(tmp_path: Path) -> None:
    code = """
with open("/proc/self/statm") as file:
    room = int(file.read().split()[0]) * resource.getpagesize() + 2**28
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for items in range(20):
    lz.save(at(items), path, keep=10**9)
print(*[lz.load(path + f".{number}").items for number in range(1, 20)])
"""
    assert ran(code, tmp_path).split() == [str(items) for items in range(19)][::-1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no limits there")
def test_where_there_is_no_room_the_old_state_stays(tmp_path: Path) -> None:
    code = """
lz.save(at(1), path)
for room in range(0, 100, 7):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        lz.save(at(2), path)
    except OSError:
        pass
    else:
        raise AssertionError(room)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert lz.load(path) == at(1)
print(*os.listdir(os.path.dirname(path)))
"""
    assert ran(code, tmp_path).split() == ["state.json"]
