"""The picture of a profile."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import lazyckpt as lz
from tests.monitoring.test_profile import RUDE, Rude, counted, waits


@pytest.mark.parametrize("text", RUDE)
def test_names_are_drawn_as_they_are(text: str, tmp_path: Path) -> None:
    found = lz.profile(lz.source(range(3)) | lz.map(Rude(text)))
    found.plot().figure.savefig(tmp_path / "profile.png")
    plt.close("all")


def test_it_has_a_bar_for_each_stage() -> None:
    found = lz.profile(lz.source(range(9)) | lz.map(waits) | lz.batch(2))
    ax = plt.subplots()[1]
    assert found.plot(ax) is ax
    working, waiting = ax.containers
    for stage, a, b in zip(found.stages, working, waiting, strict=True):
        assert a.get_width() + b.get_width() == pytest.approx(stage.seconds)
    assert [each.get_text() for each in ax.get_yticklabels()] == [*counted(found)]
    plt.close("all")
