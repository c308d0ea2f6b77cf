"""The samples of MDS with their images and pickled values, as they were written."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from tests.io import shard_rows

MDS = {**shard_rows.MDS, "pil": "pil", "png": "png", "pngs": "list[png]", "pkl": "pkl"}


def image(n: int) -> Image.Image:
    return Image.fromarray(np.full((2, n + 1, 3), n, np.uint8))


def png(found: Image.Image) -> bytes:
    out = io.BytesIO()
    found.save(out, format="PNG")
    return out.getvalue()


def mds(n: int) -> dict[str, Any]:
    """Sample number `n` of MDS."""
    images = {"pil": image(n), "png": image(n), "pngs": [image(i) for i in range(n)]}
    return {**shard_rows.mds_sample(n), **images, "pkl": {n}}
