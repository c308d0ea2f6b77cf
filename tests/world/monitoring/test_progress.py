"""`progress` in a notebook."""

from __future__ import annotations

import nbformat

from tests.world.test_notebook import executed


def test_a_notebook_without_ipywidgets_is_not_warned() -> None:
    code = (
        "import sys, warnings\n"
        "sys.modules['ipywidgets'] = None\n"
        "warnings.simplefilter('error')\n"
        "import lazyckpt as lz\n"
        "print(sum(lz.progress(lz.source(range(5)))))"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    outputs = executed(notebook).cells[0].outputs
    texts = {each.name: each.text for each in outputs if each.output_type == "stream"}
    assert "10" in texts["stdout"]
    assert "5/5" in texts["stderr"]
