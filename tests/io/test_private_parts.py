"""Private parts of other packages that `lazyckpt.io` uses: gone or changed, they are named here."""

from __future__ import annotations

import gzip
import struct
import zlib

import indexed_gzip

from tests.io.cases import folder


def test_the_index_that_indexed_gzip_exports_has_the_layout_that_is_read() -> None:
    """lazyckpt/io/gzip.py: a header, a row for each point, and the windows of those with one."""
    place = folder()
    text = b"".join(b"%d %x\n" % (n, n * 2654435761 % 2**32) for n in range(30_000))
    content = gzip.compress(text)
    (place / "a.gz").write_bytes(content)
    with indexed_gzip.IndexedGzipFile(f"{place}/a.gz", spacing=1 << 16) as opened:
        opened.build_full_index()
        opened.export_index(f"{place}/a.points")
    found = (place / "a.points").read_bytes()
    header = struct.Struct("<5sHQQIII")
    magic, version, compressed, size, spacing, window, count = header.unpack_from(found)
    assert (magic, version) == (b"GZIDX", 1)
    assert (compressed, size, spacing, window) == (len(content), len(text), 1 << 16, 1 << 15)
    point = struct.Struct("<QQBB")
    points = [point.unpack_from(found, header.size + n * point.size) for n in range(count)]
    windows = header.size + count * point.size
    assert len(found) == windows + (sum(each[3] for each in points) << 15)
    assert [each[3] for each in points] == [0] + [1] * (count - 1)
    assert count > 3
    for number, (_, begin, _, _) in enumerate(points[1:]):
        at = windows + (number << 15)
        assert found[at : at + (1 << 15)] == text[begin - (1 << 15) : begin]
    at, begin, bits, _ = points[2]
    assert 0 <= bits < 8
    whole = int.from_bytes(content[at - (bits > 0) :], "little") >> (8 - bits if bits else 0)
    deflate = whole.to_bytes(len(content) - at + 1, "little")
    inflate = zlib.decompressobj(-15, zdict=text[begin - (1 << 15) : begin])
    assert inflate.decompress(deflate) == text[begin:]
