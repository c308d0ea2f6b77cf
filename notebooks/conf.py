"""The documentation: `pip install -e ".[docs]" && sphinx-build -W notebooks build/docs`."""

from __future__ import annotations

import re
from pathlib import Path

from lazyckpt import __version__

project = "lazyckpt"
author = "lazyckpt contributors"
copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["**.ipynb_checkpoints"]
default_role = "literal"  # of `names` in docstrings

# Text pages run each time. Notebooks are shown with what they store, which pytest compares.
nb_execution_mode = "force"
nb_execution_excludepatterns = [str(page) for page in Path(__file__).parent.glob("*.ipynb")]
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autosummary_generate = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "lazyckpt"
html_static_path = ["_static"]
html_css_files = ["index.css"]
html_copy_source = False
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp, .go"

_FIELD = re.compile(r"^(State|Resume|Random access|Rank-free|Memory|Source):$")


def in_restructured_text(app, what, name, obj, options, lines):
    """Docstrings as Sphinx reads them.

    What only ours have is listed with arguments and errors; indented code is code. Readers link to
    what they share.
    """
    found: list[str] = []
    for line in lines:
        if line == "Example:":
            found += ["Example::", ""]
        elif _begins_code(found, line):
            found += ["::", "", line]
        else:
            found.append(_FIELD.sub(r":\1:", line).replace("See `Rows`", "See :py:class:`Rows`"))
    lines[:] = found


def _begins_code(above: list[str], line: str) -> bool:
    text = "".join([each for each in above if each][-1:])
    is_indented = line.startswith("    ") and above[-1:] == [""]
    return is_indented and not text.startswith((" ", ">>>")) and not text.endswith("::")


def as_stage(app, what, name, obj, options, signature, returned):
    """A combinator returns what its own signature says, rather than that of what wraps it."""
    own = getattr(obj, "__signature__", None)
    return (signature, own.return_annotation) if what == "function" and own else None


def setup(app):
    app.connect("autodoc-process-docstring", in_restructured_text, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", as_stage)
