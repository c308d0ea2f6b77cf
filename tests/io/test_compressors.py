"""Text and JSON lines as the compressors' own settings write them, against reference readers."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io import content as content_module
from tests.io.cases import check_good_rows, folder, written, zstd
from tests.io.formats import bgzf

PART = 700  # bytes of a member, frame or block


def parts(content: bytes) -> list[bytes]:
    return [content[at : at + PART] for at in range(0, len(content), PART)] or [b""]


def deflated(flush: int, **how: int) -> Callable[[bytes], bytes]:
    """A gzip member that is flushed after each part, as by pigz or `gzip --rsyncable`."""

    def compress(content: bytes) -> bytes:
        made = zlib.compressobj(wbits=31, **how)
        return b"".join(made.compress(p) + made.flush(flush) for p in parts(content)) + made.flush()

    return compress


def framed(**how: Any) -> Callable[[bytes], bytes]:
    """Frames of zstd; without their sizes, as of a pipe, if `is_stream`."""
    is_stream = how.pop("is_stream", False)

    def frame(part: bytes) -> bytes:
        made = zstd.ZstdCompressor(**how)
        return made.compress(part) + made.flush() if is_stream else zstd.compress(part, **how)

    return lambda content: b"".join(map(frame, parts(content)))


CHECKED = {zstd.CompressionParameter.checksum_flag: 1}
TOOLS: dict[str, tuple[str, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "stored": (".gz", deflated(zlib.Z_NO_FLUSH, level=0), gzip.decompress),
    "pigz": (".gz", deflated(zlib.Z_SYNC_FLUSH), gzip.decompress),
    "rsyncable": (".gz", deflated(zlib.Z_FULL_FLUSH), gzip.decompress),
    "fixed": (".gz", deflated(zlib.Z_NO_FLUSH, strategy=zlib.Z_FIXED), gzip.decompress),
    "members": (".gz", lambda c: b"".join(map(gzip.compress, parts(c))), gzip.decompress),
    "bgzip": (".bgz", lambda c: b"".join(map(bgzf, [*parts(c), b""])), gzip.decompress),
    "zstd": (".zst", lambda c: bytes(zstd.compress(c)), zstd.decompress),
    "pzstd": (".zst", framed(options=CHECKED), zstd.decompress),
    "piped": (".zst", framed(is_stream=True), zstd.decompress),
    "empty frames": (
        ".zst",
        lambda c: zstd.compress(b"") + zstd.compress(c) + zstd.compress(b""),
        zstd.decompress,
    ),
}
LINE = st.one_of(
    st.sampled_from([b"", b" \t", b"1", b"[1, 2]", b'"\xc3\xa9"', b'{"', b"\xff", b"\r", b"\0"]),
    st.builds(lambda n: json.dumps(["ab" * n]).encode(), st.integers(0, 400)),
    st.integers(-(10**20), 10**20).map(lambda n: b"%d" % n),
)
TEXTS = st.builds(
    lambda lines, end, bom, is_ended: bom + end.join(lines) + end * is_ended,
    st.lists(LINE, max_size=8),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.booleans(),
)


def lines_of(content: bytes) -> list[bytes]:
    found = content.split(b"\n")
    return found[:-1] if not found[-1] else found


def as_text(line: bytes, *, has_end: bool) -> str | None:
    try:
        return line.removesuffix(b"\r" if has_end else b"").decode()
    except ValueError:
        return None


def as_json(line: bytes) -> Any:
    try:
        return json.loads(line.strip().removeprefix(b"\xef\xbb\xbf"), parse_constant=int)
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("tool", "large"),
    [
        (tool, large)
        for tool, (suffix, *_) in TOOLS.items()
        for large in ([1 << 22] if suffix == ".zst" else [1 << 22, 100])  # which has no seek points
    ],
)
def test_lines_are_those_of_the_reference_readers(
    tool: str, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix, compress, decompress = TOOLS[tool]
    monkeypatch.setattr(content_module, "LARGE", large)
    monkeypatch.setattr(content_module, "SPACING", 1 << 16)
    content_module._compressed.cache_clear()

    @settings(max_examples=max(3, settings.default.max_examples // 10))
    @given(TEXTS, st.sampled_from([1, 300]))
    @example(b"a\r\nb\r", 1)
    def holds(text: bytes, times: int) -> None:
        content = text * times
        packed = compress(content)
        assert decompress(packed) == content
        lines, last = lines_of(content), not content.endswith(b"\n")
        count = len(lines)
        texts = [as_text(each, has_end=n < count - last) for n, each in enumerate(lines)]
        some = slice(None, None, max(1, count // 50))
        rows = lz.io.read_text(written([packed], f".txt{suffix}"), index_dir=folder())
        assert len(rows) == count
        if times == 1:
            check_good_rows(rows, texts)
        with lz.run(lz.source(rows), on_error="skip") as run:
            assert list(run) == [each for each in texts if each is not None]
        for number in range(count)[some]:
            if texts[number] is not None:
                assert rows[number] == texts[number]
        values = [as_json(each) for each in lines if each.strip()]
        values_read = lz.io.read_jsonl(
            written([packed], f".x{suffix}"), index_dir=folder(), loads=json.loads
        )
        if times == 1:
            check_good_rows(values_read, values)
        with lz.run(lz.source(values_read), on_error="skip") as run:
            assert list(run) == [each for each in values if each is not None]

    holds()
