"""The built site in a browser: narrow and wide, light and dark."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from matplotlib.image import imread

from tests.helpers import until
from tests.world.browser.chromium import Browser

WIDTHS = (400, 800, 1400)
PARTS = 6  # which run in parallel
SHOWN = ["index", "tutorial", "explanation/states", "explanation/peers", "reference/grouping"]

# Elements beyond the edge, unless in a box that scrolls; empty elements; pictures that are blurred
# on a screen of high density.
ARTICLE = """
const width = document.documentElement.clientWidth;
const article = document.querySelector("article") || document.body;
const all = [...article.querySelectorAll("*")];
const box = (each) => each.getBoundingClientRect();
const scrolls = (each) => each && (
  ["auto", "scroll"].includes(getComputedStyle(each).overflowX) || scrolls(each.parentElement));
const wide = all.filter((each) => {
  return box(each).width && box(each).right > width + 1 && !scrolls(each.parentElement);
});
const blank = all.filter((each) => each.matches("canvas, img, svg") && each.checkVisibility())
  .filter((each) => box(each).width < 2 || box(each).height < 2 || each.naturalWidth === 0);
const soft = all.filter((each) => each.matches("img[src*='_images/'][src$='.png']"))
  .filter((each) => each.naturalWidth < 1.9 * box(each).width);
return [
  ...(document.documentElement.scrollWidth > width ? ["the page is too wide"] : []),
  ...wide.slice(0, 3).map((each) => `beyond the edge: ${each.outerHTML.slice(0, 100)}`),
  ...blank.map((each) => `empty: ${each.outerHTML.slice(0, 100)}`),
  ...soft.map((each) => `blurred on a screen of high density: ${each.src}`),
  ...(article.textContent.trim() ? [] : ["no text"]),
  ...faint(4.5),
];
"""


def pages(site: Path) -> list[str]:
    found = (file.relative_to(site).with_suffix("") for file in site.rglob("*.html"))
    return sorted(str(name) for name in found if not str(name).startswith("_"))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_fits_and_is_legible(
    browser: Browser, address: str, site: Path, screenshots: Path, part: int
) -> None:
    problems = []
    for name in pages(site)[part::PARTS]:
        browser.open(f"{address}/{name}.html", width=WIDTHS[0], dark=False)
        for width, dark in product(WIDTHS, [False, True]):
            browser.show(width=width, dark=dark)
            found, look = browser.asked(ARTICLE), "dark" if dark else "light"
            problems += [f"{name}, {width} pixels, {look}: {each}" for each in found]
            if name in SHOWN or found:
                file = f"docs-{name.replace('/', '-')}-{width}-{look}.png"
                browser.screenshot(screenshots / file)
    assert problems == []


def test_what_does_not_fit_is_noticed(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<article><p style="width: 900px; color: #aaa">wide and faint</p></article>')
    browser.open(page.as_uri(), width=400, dark=False)
    wide, beyond, faint = browser.asked(ARTICLE)
    assert wide == "the page is too wide"
    assert beyond.startswith("beyond the edge: <p")
    assert faint.startswith("contrast 2.3")


def test_a_picture_has_the_ground_of_its_page(
    browser: Browser, address: str, site: Path, tmp_path: Path
) -> None:
    """At each corner of its first PNG picture, a page looks as it does next to it."""
    shown, selector = 0, 'article img[src*="_images/"][src$=".png"]'
    for name in pages(site):
        browser.open(f"{address}/{name}.html", width=800, dark=False)
        if browser.asked(f"return document.querySelector('{selector}') === null;"):
            continue
        shown += 1
        for dark in [False, True]:
            browser.show(width=800, dark=dark)
            browser.screenshot(tmp_path / "picture.png", selector)
            picture = imread(tmp_path / "picture.png")[..., :3]
            corners = picture[2:-2:, 2:-2][[0, 0, -1, -1], [0, -1, 0, -1]]
            assert (corners.max() < 0.15) if dark else (corners.min() > 0.95), name
    assert shown > 10


# The last row of the longest table is at the bottom of the window, and its head above it.
HEAD = """
const tables = [...document.querySelectorAll("article table.docutils")];
const table = tables.reduce((a, b) => (a.rows.length < b.rows.length ? b : a));
const last = table.rows[table.rows.length - 1];
last.scrollIntoView({block: "end", behavior: "instant"});
const head = table.tHead.rows[0].cells[0].getBoundingClientRect();
return head.top >= 0 && head.bottom <= last.getBoundingClientRect().top + 1;
"""
TABLES = ["explanation/performance", "how-to/what-may-change", "reference/catalogue"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_head_of_a_long_table_stays_in_sight(
    browser: Browser, address: str, name: str, width: int
) -> None:
    browser.open(f"{address}/{name}.html", width=width, dark=False)
    assert browser.asked(HEAD)


def test_pages_of_tables_are_wide_and_have_no_contents_in_the_margin(
    browser: Browser, address: str
) -> None:
    wide = "return document.querySelector('article').getBoundingClientRect().width;"
    contents = "return document.querySelectorAll('.toc-tree').length;"
    browser.open(f"{address}/explanation/states.html", width=1400, dark=False)
    narrow = browser.asked(wide)
    assert browser.asked(contents) == 1
    for name in [*TABLES, "explanation/peers", "how-to/troubleshooting"]:
        browser.open(f"{address}/{name}.html", width=1400, dark=False)
        assert browser.asked(wide) > 1.2 * narrow, name
        assert browser.asked(contents) == 0, name


@pytest.mark.parametrize("word", ["resume", "shuffle", "rebase"])
def test_search_finds(browser: Browser, address: str, word: str) -> None:
    browser.open(f"{address}/search.html?q={word}", width=800, dark=False)
    until(lambda: browser.asked("return document.querySelectorAll('.search li a').length > 3;"))
    links = browser.asked("return [...document.querySelectorAll('.search li a')].map(a => a.href);")
    assert all(link.startswith(address) for link in links)


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("resume in torch with 8 GPUs", "how-to/train-with-torchrun"),
        ("my filter makes ranks differ", "how-to/uneven-data"),
        ("shuffle 1 TB of Parquet", "how-to/shuffle-parquet"),
        ("which worker count", "how-to/bottleneck"),
        ("is it safe to change X mid-run", "how-to/what-may-change"),
    ],
)
def test_search_answers_a_question_with_the_right_page_first(
    browser: Browser, address: str, question: str, page: str
) -> None:
    """After a build from scratch: Sphinx drops the index entries of pages it doesn't read again."""
    browser.open(f"{address}/search.html?q={quote(question)}", width=800, dark=False)
    until(lambda: browser.asked("return document.querySelector('#search-results p') !== null;"))
    until(lambda: browser.asked("return document.querySelectorAll('.search li a').length > 0;"))
    first = browser.asked("return document.querySelector('.search li a').href;")
    assert urlsplit(first).path == f"/{page}.html"


def test_the_catalogue_can_be_filtered(browser: Browser, address: str) -> None:
    shown = """
    const filter = document.querySelector(".catalogue-filter");
    filter.value = arguments_;
    filter.dispatchEvent(new Event("input"));
    const rows = [...document.querySelectorAll("#catalogue tbody tr")];
    return rows.filter((row) => row.checkVisibility()).map((row) => row.cells[0].textContent);
    """
    browser.open(f"{address}/reference/catalogue.html", width=1400, dark=False)
    everything = browser.asked(shown.replace("arguments_", '""'))
    found = browser.asked(shown.replace("arguments_", '"dedupe bloom"'))
    assert len(everything) > 50
    assert found == ["dedupe_bloom"]
