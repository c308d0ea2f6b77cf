"""The drawings of the pages: as the library, the figures and the recording have them; with words.

`python -m tests.drawings` draws them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import lazyckpt as lz
from tests.drawings.__main__ import DRAWINGS, FOLDER
from tests.drawings.choices import executors, packings, shuffles
from tests.drawings.demo import lines
from tests.drawings.ranks import dealt
from tests.drawings.svg import Drawing
from tests.pages import NOTEBOOKS, README
from tests.test_guides import strings

PAGES = [README, *sorted(NOTEBOOKS.rglob("*.md"))]
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
DARK = r'<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">'
PICTURE = re.compile(rf'{DARK}\n<img src="([^"]+)" alt="([^"]+)"(?: width="\d+")?>')
INLINE = re.compile(r"^:file: (\S+)$", re.MULTILINE)


def images() -> list[tuple[Path, str, Path]]:
    """Of each picture on a page: the page, what it says in words, and its file."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        shown = IMAGE.findall(text)
        shown += [(words, name) for *names, words in PICTURE.findall(text) for name in names]
        found += [(page, words, (page.parent / name).resolve()) for words, name in shown]
    return found


def title(drawing: Path) -> str:
    return ElementTree.fromstring(drawing.read_text("utf-8")).findtext("{*}title") or ""


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_what_is_drawn_today(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == DRAWINGS[name]()


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_small_and_has_words_and_both_schemes(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    assert len(title(FOLDER / name)) > 40
    assert "prefers-color-scheme: dark" in text
    assert len(text) < 20_000


def test_every_picture_is_on_a_page_and_told_in_words() -> None:
    shown = images()
    inline = {name for page in PAGES for name in INLINE.findall(page.read_text("utf-8"))}
    names = {file.name for _, _, file in shown} | {Path(each).name for each in inline}
    assert {file.name for file in FOLDER.iterdir()} == names
    for page, words, file in shown:
        assert len(words) > 40, f"{page.name}: {file.name}"
        if file.name in DRAWINGS:
            assert words == title(file), f"{page.name}: {file.name}"


def test_a_png_of_the_readme_has_a_dark_variant() -> None:
    text = README.read_text("utf-8")
    assert text.count(".png") == 2 * len(PICTURE.findall(text)) == 4
    for dark, light, _ in PICTURE.findall(text):
        assert dark == light.replace(".png", "-dark.png")


def test_every_item_is_dealt_to_one_rank() -> None:
    items = sorted(item for ranks in dealt() for rank in ranks for item in rank)
    assert items == [*range(len(items))]
    assert [len(ranks) for ranks in dealt()] == [4, 6, 3]


@pytest.mark.parametrize("drawing", [shuffles, executors, packings])
def test_answers_name_what_there_is(drawing: Callable[[], Drawing]) -> None:
    answers = re.findall(r'class="code bold"[^>]*>(?:lz\.torch\.)?(\w+)', drawing().svg())
    assert len(answers) >= 4
    assert {*answers} - {"shared"} <= {*lz.__all__}


def test_the_recorded_demo_is_as_it_prints_today_and_ends_well() -> None:
    recorded = [*lines()]
    assert [line.seconds for line in recorded] == sorted(line.seconds for line in recorded)
    for line in (recorded[1], recorded[-1]):
        assert any(part in strings() for part in re.split(r"[\d.]+", line.text) if len(part) > 12)
    assert recorded[-1].text.startswith("The same, bit for bit.")
