"""Draws the pictures of the README, light and dark: `python -m tests.world.browser.pictures`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lazyckpt as lz
from tests.pages import NOTEBOOKS
from tests.world.browser.chromium import chromium
from tests.world.browser.pages import bare

IMAGES = NOTEBOOKS / "images"
LOSSES = IMAGES / "loss-curves.png"  # of a notebook
FILTER = "filter:invert(1) hue-rotate(180deg)"  # as in the style sheet of the pages


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
    picture = f'<div style="width:1240px;padding:4px 8px">{pipeline()._repr_html_()}</div>'
    losses = f'<img style="display:block;{FILTER}" src="{LOSSES.as_uri()}">'
    with TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder) / "page.html"
        for name, shown, selector, dark, scale in (
            ("pipeline.png", picture, "body > div", False, 2),
            ("pipeline-dark.png", picture, "body > div", True, 2),
            ("loss-curves-dark.png", losses, "img", True, 1),
        ):
            file.write_text(bare(shown, dark=dark), "utf-8")
            browser.open(file.as_uri(), width=1280, dark=dark, scale=scale)
            browser.screenshot(IMAGES / name, selector)
            print(f"{name}: {(IMAGES / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
