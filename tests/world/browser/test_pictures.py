"""Pictures in a real browser: on wide and narrow pages, light and dark, whatever their texts."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from tests.pictures.cases import HEBREW, PIPELINES, SCRIPT, foreign, mixture
from tests.world.browser.chromium import Browser
from tests.world.browser.pages import PAGES, bare, notebook

LOOKS = [(400, False), (800, False), (1_400, False), (800, True)]  # widths, and whether dark


def started(n: int = 3) -> lz.Run[Any]:
    run = lz.run(lz.source(range(1_000)) | lz.shuffle(seed=0) | lz.batch(32))
    run.advance(n)
    return run


def moved() -> lz.types.Difference:
    run = lz.run(mixture())
    before = run.state
    run.advance(40)
    return lz.diff(before, run.state)


def first_items() -> lz.types.Head[Any]:
    data = {"image": np.zeros((3, 224, 224), "f4"), "text": SCRIPT * 9, HEBREW: ["w" * 300] * 9}
    return lz.head(lz.source([data, None, "x"]) | lz.map(lambda item: item if item else 1 / 0))


def explained() -> lz.types.Explanation:
    pipeline = mixture() | lz.shuffle(9, seed=3) | lz.filter(lambda item: item != SCRIPT * 9)
    return lz.explain(pipeline | lz.map(random.choice), lz.processes(2))


SHOWN: dict[str, Callable[[], Any]] = {
    **PIPELINES,
    "stages": lambda: lz.map(str) | lz.batch(3),
    "run": started,
    "state": lambda: lz.state_at(mixture(), 40),
    "difference": moved,
    "cost": lambda: lz.resume_cost(mixture(), lz.state_at(mixture(), 40)),
    "head": first_items,
    "explanation": explained,
    "long_explanation": lambda: lz.explain(PIPELINES["long"]()),
    "foreign_explanation": lambda: lz.explain(foreign(), lz.threads(2)),
    "foreign_run": lambda: lz.run(foreign()),
    "nested_state": lambda: lz.init(PIPELINES["nested"]()),
}


def opened(browser: Browser, page: str, folder: Path, *, width: int, dark: bool) -> None:
    file = folder / "page.html"
    file.write_text(page, "utf-8")
    browser.open(file.as_uri(), width=width, dark=dark)


@pytest.mark.parametrize("name", SHOWN)
def test_pictures_fit_and_are_legible(
    browser: Browser, screenshots: Path, tmp_path: Path, name: str
) -> None:
    picture = SHOWN[name]()._repr_html_()
    for kind, page in PAGES.items():
        for width, dark in LOOKS:
            opened(browser, page(picture, dark), tmp_path, width=width, dark=dark)
            problems = browser.problems
            scheme = "dark" if dark else "light"
            if problems or kind == "notebook":
                browser.screenshot(screenshots / f"{name}-{kind}-{width}-{scheme}.png")
            assert not problems, (kind, width, scheme)


def test_a_narrow_pane_of_a_wide_page_is_narrow(browser: Browser, tmp_path: Path) -> None:
    picture = mixture()._repr_html_()
    page = bare(f'<div style="width:380px;overflow:auto">{picture}</div>', False)
    opened(browser, page, tmp_path, width=1_400, dark=False)
    widths = browser.asked(
        "const pane = document.querySelector('.lzp').parentElement;"
        "return [pane.scrollWidth, pane.clientWidth];"
    )
    assert widths == [380, 380]


def test_a_row_is_wide_and_a_column_narrow(browser: Browser, tmp_path: Path) -> None:
    def cards(width: int) -> list[list[float]]:
        page = notebook((lz.count() | lz.map(str) | lz.batch(2))._repr_html_(), False)
        opened(browser, page, tmp_path, width=width, dark=False)
        found: list[list[float]] = browser.asked(
            "return [...document.querySelectorAll('.lzp-card')]"
            ".map((each) => [each.getBoundingClientRect().x, each.getBoundingClientRect().y]);"
        )
        return found

    (x, y), *rest = cards(1_400)
    assert all(left > x and abs(top - y) < 60 for left, top in rest)
    (x, y), *rest = cards(400)
    assert all(left == x and top > y for left, top in rest)


@pytest.mark.parametrize("name", ["mixture", "nested"])
def test_a_wire_begins_at_the_edge_of_a_ground(browser: Browser, tmp_path: Path, name: str) -> None:
    opened(browser, bare(PIPELINES[name]()._repr_html_(), False), tmp_path, width=1_400, dark=False)
    gaps, grounds = browser.asked(
        "const wires = [...document.querySelectorAll('.lzp-wire')];"
        "const flows = wires.map((each) => each.previousElementSibling);"
        "const left = (each) => each.getBoundingClientRect().left;"
        "const gap = (each, i) => left(wires[i]) - each.getBoundingClientRect().right;"
        "return [flows.map(gap), flows.map((each) => rgba("
        "getComputedStyle(each).backgroundColor)[3])];"
    )
    assert gaps
    assert max(map(abs, gaps)) < 1
    assert min(grounds) > 0


BROKEN = {
    "contrast": '<p style="color:#999;background:#fff">faint</p>',
    "contrast of what is transparent": '<p style="opacity:.4">faint</p>',
    "the page is": '<p style="width:900px">wide</p>',
    "beyond the edge": '<p style="position:absolute;left:-90px">out</p>',
    "empty": '<p>text</p><canvas width="0" height="0"></canvas>',
    "the page has no text": "<style>p { color: red }</style>",
}


@pytest.mark.parametrize("complaint", BROKEN)
def test_a_broken_page_is_told(browser: Browser, tmp_path: Path, complaint: str) -> None:
    opened(browser, bare(BROKEN[complaint], False), tmp_path, width=800, dark=False)
    (problem, *_) = browser.problems
    assert problem.startswith(complaint.partition(" of what")[0])


def test_no_script_of_an_item_runs(browser: Browser, tmp_path: Path) -> None:
    item = "<img src=x onerror='document.title=1'><script>document.title = 2</script>"
    pipeline = lz.source([item], name=item[:40]) | lz.map(lambda x: x)
    for picture in (pipeline._repr_html_(), lz.head(pipeline)._repr_html_()):
        opened(browser, bare(picture, False), tmp_path, width=800, dark=False)
        assert browser.asked("return document.title;") == "picture"
        assert browser.asked("return document.querySelectorAll('img, script').length;") == 0
