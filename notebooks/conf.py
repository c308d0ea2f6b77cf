"""The documentation: `pip install -e ".[docs]" && sphinx-build -W -j auto notebooks build/docs`."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

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
nb_render_markdown_format = "myst"  # tables in what cells show
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
html_js_files = ["filter.js"]
html_copy_source = False
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp, .go"

_NAME = re.compile(r"lz\.((?:\w+\.)*\w+)")
_INTEGRATION = re.compile(r"(accelerate|grain|jax|lightning|prometheus|torch|transformers)\.")
_FIELD = re.compile(r"^(State|Resume|Random access|Rank-invariant|Memory|Source):$")


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
    """A combinator returns what its own signature says, rather than that of what wraps it.

    A class that nobody makes, such as a protocol, has none.
    """
    own = getattr(obj, "__signature__", None)
    if what == "class" and signature == "(*args, **kwargs)":
        return "", None
    return (signature, own.return_annotation) if what == "function" and own else None


def is_left_out(app, what, name, obj, skip, options):
    """The fields of a named tuple are described with it."""
    return True if (getattr(obj, "__doc__", "") or "").startswith("Alias for field") else None


def link_names(app, doctree):
    """The first `lz.name` of each kind on a page is a link to the reference."""
    linked = set()
    for literal in list(doctree.findall(nodes.literal)):
        found = _NAME.match(literal.astext())
        apart = (nodes.reference, nodes.title, addnodes.pending_xref)
        if found and found[1] not in linked and not isinstance(literal.parent, apart):
            linked.add(found[1])
            name = _INTEGRATION.sub(r"integrations.\g<0>", found[1], count=1)
            known = {"refdomain": "py", "reftype": "obj", "refdoc": app.env.docname}
            link = addnodes.pending_xref("", reftarget=f"lazyckpt.{name}", refwarn=False, **known)
            literal.replace_self(link)
            link += literal


def setup(app):
    app.connect("doctree-read", link_names)
    app.connect("autodoc-process-docstring", in_restructured_text, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", as_stage)
    app.connect("autodoc-skip-member", is_left_out)
