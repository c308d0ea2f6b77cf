"""Pages about frameworks, which are imported here, and pictures of figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_benchmarks import printed
from tests.test_docs import has_every_public_name
from tests.test_how_to import GUIDES, is_of_world, names_what_exists


@pytest.mark.parametrize(
    "name", ["accelerate", "grain", "jax", "lightning", "torch", "transformers"]
)
def test_the_reference_has_every_public_name(name: str) -> None:
    has_every_public_name(f"lazyckpt.integrations.{name}")


@pytest.mark.parametrize(
    "page", [page for page in GUIDES if is_of_world(page)], ids=lambda page: page.stem
)
def test_what_a_guide_names_exists(page: Path) -> None:
    names_what_exists(page)


def test_shuffles_have_a_picture(tmp_path: Path) -> None:
    code = "import shuffles; shuffles.SIZE = 64; from pathlib import Path\n"
    printed(tmp_path, code + "shuffles.picture(Path('shuffles.png'))")
    assert (tmp_path / "shuffles.png").read_bytes().startswith(b"\x89PNG")
