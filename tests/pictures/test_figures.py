"""Pictures of pipelines: their content, that they read nothing, and that they stay small."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.call import Chain
from lazyckpt.pictures.chains import RANK_INVARIANT, chain_nodes
from lazyckpt.pictures.drawing import figure
from lazyckpt.pictures.figure import ROOM, Node
from lazyckpt.testing import strategies
from tests.docstrings import parsed, sentence
from tests.pictures.cases import HEBREW, PIPELINES, SCRIPT, Counting, foreign, mixture

VOID = {"meta", "br", "img"}


class Page(HTMLParser):
    """HTML whose tags are closed in their order; its texts, titles and tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.titles: list[str] = []
        self.attributes: set[str] = set()
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [tag] if tag not in VOID else []
        self.attributes |= {name for name, _ in attrs}
        self.titles += [value or "" for name, value in attrs if name == "title"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.texts.append(data)


def flat(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """In the order in which a state tells of stages."""
    for node in nodes:
        yield node
        for branch in node.branches:
            yield from flat(branch.nodes)


def shown(pictured: Any) -> tuple[str, str]:
    """The HTML and the text of something."""
    return pictured._repr_html_(), lz.tree(pictured, width=40)


# --- the content of pictures ---


def test_a_stage_is_a_card_with_its_arguments() -> None:
    pipeline = lz.source(range(9)) | lz.shuffle(4, seed=1) | lz.map(str)
    source, shuffle, mapped = chain_nodes(pipeline)
    assert (source.name, source.arguments, source.is_source) == ("source", ("range(0, 9)",), True)
    assert (shuffle.name, shuffle.arguments) == ("shuffle", ("buffer_size=4", "seed=1"))
    assert (source.owns, shuffle.owns, mapped.owns) == (True, True, False)
    words = [[mark.word for mark in node.marks] for node in (source, shuffle, mapped)]
    assert words[0] == ["9 items", "random access", "own state", "rank-invariant"]
    assert words[2] == ["9 items", "random access", "rank-invariant"]
    page = Page(pipeline._repr_html_())
    assert {"shuffle", "seed=1", "str"} <= {*page.texts}
    assert any(title.startswith("random access:") for title in page.titles)


def test_joined_pipelines_are_branches_with_their_weights() -> None:
    mix, *behind = chain_nodes(mixture())
    assert [branch.label for branch in mix.branches] == ["0.7", "0.3"]
    assert mix.arguments == ("seed=2", "stop='never'")
    names = [[node.name for node in branch.nodes] for branch in mix.branches]
    assert names == [["source", "shuffle", "map"], ["source", "shuffle", "flat_map"]]
    assert [node.name for node in behind] == ["shard", "shuffle", "batch"]


@pytest.mark.parametrize(
    ("pipeline", "labels"),
    [
        (lz.zip(lz.count(), lz.count()), ["", ""]),
        (lz.concat(lz.source([1]), lz.source([2])), ["", ""]),
        (lz.case(lz.source([0]), lz.count(), lz.count()), ["selector", "0", "1"]),
        (
            lz.switch(lz.source([0]), lz.count(), lz.count()),
            ["condition", "if_true", "if_false"],
        ),
        (lz.multiplex(lz.source([0]), [lz.count()]), ["control", "0"]),
        (lz.lanes([lz.count()] * 2, num_shards=2, index=0), ["", ""]),
        (
            lz.mix([lz.count()] * 2, [1, 3], seed=0, stop="never"),
            ["1", "3"],
        ),
    ],
)
def test_branches_say_which_part_they_play(pipeline: lz.Pipeline[Any], labels: list[str]) -> None:
    assert [branch.label for branch in chain_nodes(pipeline)[0].branches] == labels


def test_a_composite_is_one_card_with_the_places_of_its_stages() -> None:
    @lz.composite
    def windows(n: int) -> Any:
        return lz.sliding_window(n) | lz.flat_map(list) | lz.shuffle(4, seed=0)

    run = lz.run(lz.source(range(9)) | windows(2) | lz.batch(2))
    next(run)
    _, composite, batch = figure(run).nodes
    assert (composite.name, composite.arguments) == ("windows", ("2",))
    assert composite.owns
    assert not batch.owns
    assert " · " in composite.place


SAID = {
    name: sentence(parsed(getattr(lz, name)).sections["Rank-invariant"])
    for name in sorted({*lz.registry} & {*strategies.STAGES})
}


@pytest.mark.parametrize("name", [name for name, said in SAID.items() if said in ("Yes", "No")])
@given(data=st.data())
def test_rank_invariance_is_what_the_docstrings_say(name: str, data: st.DataObject) -> None:
    pipeline = lz.source([[n] for n in range(20)]) | data.draw(strategies.STAGES[name])
    marks = chain_nodes(pipeline)[-1].marks
    assert (RANK_INVARIANT in marks) == (SAID[name] == "Yes")


@pytest.mark.parametrize("stage", [lz.take_while(len), lz.drop_while(len), lz.scan(max, 0)])
def test_unknown_rank_invariance_is_not_claimed(stage: lz.Stage[Any, Any]) -> None:
    pipeline = lz.source([[1], []]) | lz.filter(len) | stage
    assert RANK_INVARIANT not in chain_nodes(pipeline)[-1].marks
    joined = chain_nodes(lz.zip(lz.source([[1]]) | stage, lz.count()) | lz.batch(2))
    assert [RANK_INVARIANT in node.marks for node in joined] == [False, True]


def test_stages_without_a_source_have_no_marks() -> None:
    assert all(not node.marks for node in chain_nodes(lz.map(str) | lz.batch(2)))
    assert "shuffle" in lz.tree(lz.shuffle(seed=0) | lz.batch(2), width=40)


# --- nothing is read ---


def counting(chain: Any) -> tuple[Any, list[Counting]]:
    """The same pipeline over data that count how many of their items are read."""
    found: list[Counting] = []

    def swapped(chain: Chain) -> Any:
        first, *rest = chain.calls
        if type(first.arguments.get("data")) in (list, range):
            found.append(Counting(first.arguments["data"]))
            first = first.replaced(data=found[-1])
        elif first.chains:
            first = first.with_chains(swapped)
        return type(chain)((first, *rest))

    return swapped(chain), found


@given(strategies.pipelines())
def test_pictures_read_nothing(pipeline: lz.Pipeline[Any]) -> None:
    pipeline, sources = counting(pipeline)
    run = lz.run(pipeline)
    before = [len(each.read) for each in sources]
    for each in (pipeline, run, run.state, lz.diff(run.state, run.state)):
        Page(each._repr_html_())
        assert repr(each)
        assert lz.tree(each, width=40)
    assert [len(each.read) for each in sources] == before


@settings(max_examples=20)
@given(strategies.pipelines(), st.integers(1, 4))
def test_a_picture_of_a_run_disturbs_nothing(pipeline: lz.Pipeline[Any], n: int) -> None:
    expected = list(pipeline)
    run, found = lz.run(pipeline), []
    for item in run:
        found.append(item)
        if len(found) == n:
            shown(run)
    assert repr(found) == repr(expected)


# --- bad input ---


@pytest.mark.parametrize("name", PIPELINES)
def test_pictures_are_of_bounded_size(name: str) -> None:
    pipeline = PIPELINES[name]()
    nodes = [*flat(chain_nodes(pipeline))]
    assert len(nodes) <= 2 * ROOM
    html, text = shown(pipeline)
    assert len(html) < 300_000
    assert len(text) < 100_000


@pytest.mark.parametrize("name", sorted({*PIPELINES} - {"doubled"}))
def test_pictures_of_states_are_of_bounded_size(name: str) -> None:
    state = lz.init(PIPELINES[name]())
    assert len(state._repr_html_()) < 300_000
    assert len(lz.tree(state, width=40)) < 100_000


def test_what_is_left_out_is_said() -> None:
    texts = Page(PIPELINES["long"]()._repr_html_()).texts
    assert "162 more stages" in texts
    assert texts.count("map") == 38
    texts = Page(PIPELINES["wide"]()._repr_html_()).texts
    assert "39 more pipelines" in texts
    assert "... 162 more stages" in lz.tree(PIPELINES["long"](), width=80)


def test_texts_of_others_are_escaped_and_isolated() -> None:
    run = lz.run(foreign())
    for each in (run, foreign(), run.state):
        html = each._repr_html_()
        page = Page(html)
        assert "script" not in page.tags
        assert {*page.tags} <= {"div", "span", "bdi", "style"}
        assert not {"id", "onclick", "onerror"} & page.attributes
        assert SCRIPT not in html
        assert "\u202e" not in html
        assert f"<bdi>name='{HEBREW}'</bdi>".replace("'", "&#39;") in html
        assert all(line.isprintable() for line in lz.tree(each, width=40).split("\n"))
    assert any(SCRIPT in text for text in Page(run._repr_html_()).texts)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("width", [1, 40, 80])
def test_text_keeps_within_its_width(name: str, width: int) -> None:
    lines = lz.tree(PIPELINES[name](), width=width).split("\n")
    deepest = max(len(line) - len(line.lstrip(" |")) for line in lines)
    assert max(map(len, lines)) <= max(width, deepest + 24)


@pytest.mark.parametrize("value", [None, [1, 2], "text", lz.map, {}])
def test_tree_wants_what_has_stages(value: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="tree: expected a pipeline, a run or a state, got"):
        lz.tree(value)


@pytest.mark.parametrize("width", [0, -1, 1.5, "40"])
def test_tree_wants_a_width(width: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="tree: width must be"):
        lz.tree(lz.count(), width=width)
