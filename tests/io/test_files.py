"""Listings: order, identity, what can't be listed, JSON."""

from __future__ import annotations

import io
import os
import pickle
from glob import escape, glob
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io import File, Files
from lazyckpt.io.storage import glob_files
from tests.io.cases import folder, in_fork


@pytest.fixture
def place() -> Path:
    """A folder with files, and one with no more than a folder."""
    found = folder()
    for name in ("part-10.txt", "part-2.txt", "deep/er/part-1.txt", "other.csv"):
        Path(found, name).parent.mkdir(parents=True, exist_ok=True)
        Path(found, name).write_text(name)
    return found


def names(files: Files, place: Path) -> list[str]:
    return [str(Path(file.path).relative_to(place)) for file in files]


def test_files_come_by_pattern_and_within_one_by_path(place: Path) -> None:
    found = lz.io.files([f"{place}/*.csv", place / "**/*.txt"])
    assert names(found, place) == [
        "other.csv", "deep/er/part-1.txt", "part-10.txt", "part-2.txt",
    ]  # fmt: skip
    status = os.stat(place / "other.csv")
    assert found[0] == File(str(place / "other.csv"), 9, str(status.st_mtime_ns))


def test_paths_are_absolute(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert lz.io.files("other.csv") == lz.io.files(place / "other.csv")
    assert lz.io.files(f"file://{place}/*.csv") == lz.io.files("*.csv")


def test_a_listing_is_a_value(place: Path) -> None:
    found, again = lz.io.files(f"{place}/*"), lz.io.files(f"{place}/*")
    assert (found, hash(found), found.digest) == (again, hash(again), again.digest)
    assert pickle.loads(pickle.dumps(found)) == found
    assert found[1:] == Files([*found][1:])
    assert found[1:] != found
    assert repr(found) == f"<Files {place}/other.csv, and 2 more>"


FILES = st.lists(
    st.builds(
        File,
        path=st.text(min_size=1, max_size=6).map(lambda name: f"/data/{name}"),
        size=st.integers(0, 1 << 60),
        version=st.text(max_size=9),
        digest=st.sampled_from(["", "0", "1"]),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda file: file.path,
).map(Files)


@given(FILES)
def test_listings_survive_json(files: Files) -> None:
    text = files.to_json()
    assert text.isascii()
    assert "\n" not in text
    assert Files.from_json(text) == files
    assert Files.from_json(text).digest == files.digest


@given(FILES, FILES)
def test_digests_tell_listings_apart(one: Files, other: Files) -> None:
    below = [[(f.path[len(each.root) :], f.size, f.digest) for f in each] for each in (one, other)]
    assert (one.digest == other.digest) == (below[0] == below[1])


@given(FILES, st.data())
def test_the_one_file_that_differs_is_found(files: Files, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(files) - 1))
    sums = data.draw(st.lists(st.integers(0, 9), min_size=len(files), max_size=len(files)))
    digest = files.digest_with(sums)
    assert files.differing(digest, digest) is None
    sums[number] += 1
    assert files.differing(files.digest_with(sums), digest) == files[number].path

    for wrong in (None, 3, "", "no digest at all", digest[:8]):
        assert files.differing(digest, wrong) is None


def test_the_digest_is_that_of_the_folder_wherever_it_is() -> None:
    found = [
        Files([File(f"{root}/a/1", 3, "x"), File(f"{root}/ab/2", 4, "y")])
        for root in ("/here", "/over/there", "s3://bucket/all")
    ]
    assert len({each.digest for each in found}) == 1
    assert [each.root for each in found] == ["/here", "/over/there", "s3://bucket/all"]


def test_a_listing_is_saved_and_loaded(place: Path) -> None:
    found = lz.io.files(f"{place}/*.txt")
    found.save(place / "files.json")
    assert Files.load(place / "files.json") == found
    assert not list(place.glob("*.tmp"))


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, "{}", "[1]", '{"files": [["a", 1]]}', '{"files": 3}', "null"]
)
def test_what_is_no_listing_is_refused(text: str) -> None:
    with pytest.raises(lz.InvalidState, match="not a listing of files"):
        Files.from_json(text)


def test_a_damaged_listing_is_refused() -> None:
    text = Files([File("/a", 12, "1")]).to_json()
    for old, new in (("12", "13"), ('"lazyckpt_files": 1', '"lazyckpt_files": 2')):
        with pytest.raises(lz.InvalidState, match="damaged, or of a newer format"):
            Files.from_json(text.replace(old, new))


def test_what_differs_from_a_saved_listing_is_named() -> None:
    a, b, c = (File(f"/d/{name}", 1, "1") for name in "abc")
    saved = Files([a, b, c])
    saved.check(Files([a, b, c]))
    for now, message in [
        ([a, File("/d/b", 2, "2"), c], "file 1, /d/b: it had 1 bytes and has 2"),
        ([a, File("/d/b", 1, "2"), c], "file 1, /d/b: its version was 1 and is 2"),
        ([a, c], "file 1, /d/b, is gone"),
        ([a, c, b], "file 1, /d/b, is now file 2"),
        ([a, b, c, File("/d/d", 1, "1")], "/d/d is new, after the last"),
        ([a, File("/d/aa", 1, "1"), b, c], "/d/aa is new, before file 1, /d/b"),
    ]:
        with pytest.raises(lz.StateMismatch, match=f"saved listing: {message}$"):
            Files(now).check(saved)


def test_files_can_be_compared_with_a_saved_listing(place: Path) -> None:
    saved = lz.io.files(f"{place}/*.txt")
    assert lz.io.files(f"{place}/*.txt", like=saved) == saved
    os.remove(place / "part-2.txt")
    with pytest.raises(lz.StateMismatch, match=r"file 1, .*part-2\.txt, is gone"):
        lz.io.files(f"{place}/*.txt", like=saved)


PATTERNS = ["*", "*.txt", "part-?.txt", "[!p]*", "**", "**/*", "**/*.txt", "d*/**/*", "*/er/*",
            "deep/er/part-1.txt", "de[e]p/er/p*", "**/er/**", ".*", "**/.hidden", "*/*", "no/*",
            "other.csv/*", "**/**/*.txt"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_what_those_of_glob_do(place: Path, pattern: str) -> None:
    for name in (".hidden", "deep/.hidden", ".folder/a.txt"):
        Path(place, name).parent.mkdir(exist_ok=True)
        Path(place, name).touch()
    os.symlink("deep", place / "link")
    expected = {p for p in glob(f"{place}/{pattern}", recursive=True) if os.path.isfile(p)}
    found = [path for path in glob_files(f"{place}/{pattern}") if os.path.isfile(path)]
    assert sorted(found) == sorted(expected)


def test_links_that_lead_back_end(place: Path) -> None:
    for name in ("a", "b", "deep/c"):
        os.symlink(place, place / name)
    with pytest.raises(lz.ArgumentError, match="no file matches"):
        lz.io.files(f"{place}/**/*.nothing")
    assert names(lz.io.files(f"{place}/**/*.csv"), place) == ["other.csv"]


def _lists(pattern: str) -> bool:
    """Whether a user without permissions may list."""
    if os.getuid() == 0:
        os.setuid(65534)
    try:
        lz.io.files(pattern)
    except PermissionError as error:
        return "closed" not in str(error)
    return True


@pytest.mark.parametrize("pattern", ["**/*.txt", "*/*.txt", "**"])
def test_a_folder_that_can_not_be_read_is_an_error(pattern: str) -> None:
    with TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        for name in ("open", "closed"):
            Path(top, name).mkdir()
            Path(top, name, "a.txt").touch()
        os.chmod(Path(top, "closed"), 0)
        status = in_fork(lambda: _lists(f"{top}/{pattern}"))
        os.chmod(Path(top, "closed"), 0o755)
        assert status == 0


def test_a_state_of_files_knows_them(place: Path) -> None:
    lines = lz.flat_map(lz.io.iter_text)
    found = lz.io.files(f"{place}/*.txt")
    state = lz.state_at(found | lines, 1)
    assert list(lz.run(found | lines, state)) == ["part-2.txt"]
    assert lz.trace(found | lines, 1)[0].row == (found[1].path, 0, 0, 10)
    assert lz.trace(found | lz.map(str), 1)[0].row == found[1]
    (origin,) = lz.trace(found | lz.flat_map(lz.io.read_text) | lz.map(str.upper), 1)
    assert (origin.index, origin.row) == (1, (found[1].path, 0, 0, 10))
    Path(found[0].path).write_text("other line")
    now = lz.io.files(f"{place}/*.txt")
    with pytest.raises(lz.StateMismatch, match=f'digest="{found.digest}"'):
        lz.run(now | lines, state)
    with pytest.raises(lz.SourceChanged, match=r"part-10\.txt changed since it was listed"):
        list(found | lines)


def test_what_can_not_be_listed_is_named(place: Path) -> None:
    os.symlink("loop", place / "loop")
    os.symlink(".", place / "again")
    os.symlink("nowhere", place / "broken.txt")
    for pattern, message in [
        ("*.nothing", "no file matches '.*nothing'"),
        ("part-{1..9}.txt", r"no file .*; braces aren't expanded, pass '.*part-\*\.txt' or a list"),
        ("o*{.tsv,.json}", r"no file .*; braces aren't expanded, pass '.*o\*\*' or a list"),
        ("deep", r"deep is a directory; write .*deep/\*"),
        ("*.csv *.csv", r"other\.csv is listed twice, by '.*' and '.*'"),
        ("*.csv again/*.csv", r"/other\.csv and .*again/other\.csv are the same file"),
    ]:
        patterns = [f"{place}/{each}" for each in pattern.split()]
        with pytest.raises(lz.ArgumentError, match=message):
            lz.io.files(patterns)
    with pytest.raises(lz.ArgumentError, match="listed twice"):
        lz.io.files([place / "other.csv", f"/{place}/other.csv"])
    with pytest.raises(OSError, match="loop"):
        lz.io.files(place / "loop")
    for pattern in ("missing.txt", "*.txt"):
        with pytest.raises(FileNotFoundError):
            lz.io.files(place / pattern)


def test_braces_may_be_in_a_name(place: Path) -> None:
    Path(place, "{a,b}.txt").touch()
    for pattern in ("{a,b}.txt", "*{a,b}.txt"):
        assert names(lz.io.files(place / pattern), place) == ["{a,b}.txt"]
    with pytest.raises(FileNotFoundError):
        lz.io.files(place / "{a}.txt")


def test_links_to_one_file_are_files_of_their_own() -> None:
    """As in the cache of Hugging Face's hub, in which two files with equal content are one blob."""
    place = folder()
    for name in ("blobs", "snapshots/1"):
        Path(place, name).mkdir(parents=True)
    Path(place, "blobs/a").write_text("a\n")
    for name in ("0.txt", "1.txt"):
        os.symlink("../../blobs/a", place / "snapshots/1" / name)
    os.link(place / "blobs/a", place / "snapshots/1/2.txt")
    found = lz.io.files([f"{place}/snapshots/**/*.txt", place / "blobs/a"])
    assert names(found, place) == [*(f"snapshots/1/{n}.txt" for n in range(3)), "blobs/a"]
    assert lz.io.read_text(found, index_dir=folder())[:] == ["a"] * 4


def test_files_that_are_chosen_are_a_listing(place: Path) -> None:
    found = lz.io.files(f"{place}/*")
    chosen = [file for file in found if file.path.endswith(".txt")]
    with pytest.raises(lz.ArgumentError, match=r"got a File; .* lz\.io\.Files\(\["):
        lz.io.read_text(chosen)
    assert len(lz.io.read_text(Files(chosen))) == 2
    with pytest.raises(lz.ArgumentError, match=r"items must be File, got 'a\.txt'; lz\.io\.files"):
        Files(["a.txt"])  # type: ignore[list-item]
    with pytest.raises(lz.ArgumentError, match=r"must be Files, such as Files\.load.*got 'a.json'"):
        lz.io.files(f"{place}/*", like="a.json")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ([], "at least one"),
        (3, r"a list of them, got 3 \(int\)"),
        ([3], "got 3"),
        (b"a.txt", "got b'a.txt'"),
        ({"a.txt", "b.txt"}, r"a set has no stable order, pass sorted\(...\)"),
        ({"a.txt": 1}, r"got \{'a.txt': 1\} \(dict\)"),
        (io.StringIO("a.txt"), r"\(StringIO\)"),
    ],
)
def test_what_are_no_patterns_is_refused(patterns: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        lz.io.files(patterns)  # type: ignore[arg-type]


def test_a_name_that_is_a_pattern_is_not_taken_for_another(place: Path) -> None:
    for name in ("[1].txt", "1.txt", "what [draft].txt"):
        Path(place, name).write_text("a\n")
    for name in ("[1].txt", "what [draft].txt"):
        path = place / name
        with pytest.raises(lz.ArgumentError, match=r"its own name; pass glob\.escape\(path\)"):
            lz.io.files(path)
        assert names(lz.io.files(escape(str(path))), place) == [name]
    assert names(lz.io.files(place / "[12].txt"), place) == ["1.txt"]
    with pytest.raises(lz.ArgumentError, match=r"no file matches .*; glob\.escape\(name\)"):
        lz.io.files(place / "[8].txt")
