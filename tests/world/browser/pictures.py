"""Draws the picture of the README: `python -m tests.world.browser.pictures`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lazyckpt as lz
from tests.pages import NOTEBOOKS
from tests.world.browser.chromium import chromium
from tests.world.browser.pages import bare

PICTURE = NOTEBOOKS / "images" / "pipeline.png"


def read_lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines()


def tokenize(line: str) -> list[str]:
    return line.split()


def pipeline() -> lz.Pipeline[Any]:
    """Two corpora, each shuffled and read, mixed, tokenized, packed and sharded."""

    def corpus(name: str, files: int, seed: int) -> lz.Pipeline[str]:
        paths = [f"{name}/{number}.txt" for number in range(files)]
        read = lz.source(paths, name=name) | lz.shuffle(seed=seed) | lz.repeat()
        return read | lz.flat_map(read_lines)

    corpora = [corpus("web", 512, 0), corpus("code", 64, 1)]
    mixed = lz.mix(corpora, [0.7, 0.3], seed=2) | lz.shuffle(65_536, seed=3)
    return mixed | lz.map(tokenize) | lz.batch(32)


def main() -> None:
    picture = pipeline()._repr_html_()
    page = bare(f'<div style="width:1240px;padding:4px 8px">{picture}</div>', dark=False)
    with TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder) / "page.html"
        file.write_text(page, "utf-8")
        browser.open(file.as_uri(), width=1280, dark=False, scale=2)
        browser.screenshot(PICTURE, "body > div")
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
