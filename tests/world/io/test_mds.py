"""MDS: images as mosaicml-streaming wrote them."""

from __future__ import annotations

import pytest

import lazyckpt as lz
from tests.io.shard_rows import DATA
from tests.world.io.shard_images import mds, png


@pytest.mark.parametrize("compression", ["none", "gz", "zstd"])
def test_images_are_what_the_owner_wrote(compression: str) -> None:
    place = DATA / "mds" / compression / "index.json"
    images = list(lz.io.read_mds(place, columns=["pil", "png", "pngs"]))
    expected = [mds(n) for n in range(7)]
    assert [row["pil"] for row in images] == [row["pil"] for row in expected]
    assert [row["png"] for row in images] == [png(row["png"]) for row in expected]
    assert [row["pngs"] for row in images] == [[*map(png, row["pngs"])] for row in expected]
