"""Pages that pictures may be on: of no style, in a notebook, in documentation."""

from __future__ import annotations

_BARE = '<meta name="color-scheme" content="light dark">'
_NOTEBOOK = """<style>
body {{ margin: 0; background: {paper}; font-family: sans-serif }}
.jp-RenderedHTMLCommon {{
  color: {ink}; font-size: 14px; line-height: 1.6; padding: 5px; margin-left: 64px }}
.jp-RenderedHTMLCommon table {{ border-collapse: collapse; font-size: 12px }}
.jp-RenderedHTMLCommon code {{ background: {code}; padding: 1px 5px }}
@media (max-width: 600px) {{ .jp-RenderedHTMLCommon {{ margin-left: 0 }} }}
</style>"""
_FURO = """<style>
body {{ margin: 0; background: {paper}; color: {ink}; font-family: sans-serif }}
article {{ max-width: 46em; margin: auto; padding: 16px; line-height: 1.5 }}
article * {{ box-sizing: border-box }}
.output {{ overflow-x: auto }}
code {{ background: {code} }}
</style>"""
_LIGHT = {"paper": "#ffffff", "ink": "rgba(0, 0, 0, .87)", "code": "#f5f5f5"}
_DARK = {"paper": "#111111", "ink": "rgba(255, 255, 255, .87)", "code": "#2a2a2a"}
_FURO_DARK = {"paper": "#131416", "ink": "#cfd0d0", "code": "#1a1c1e"}


def bare(body: str, dark: bool) -> str:
    """A page that leaves colours to the browser."""
    return _page(_BARE, body)


def notebook(body: str, dark: bool) -> str:
    """A page with the colours of JupyterLab's outputs, whatever the system prefers."""
    style = _NOTEBOOK.format(**(_DARK if dark else _LIGHT))
    light = str(not dark).lower()
    output = f'<div class="jp-RenderedHTMLCommon" data-jp-theme-light="{light}">{body}</div>'
    return _page(style, output)


def documentation(body: str, dark: bool) -> str:
    """A page with the colours and the width of furo's articles."""
    style = _FURO.format(**(_FURO_DARK if dark else _LIGHT))
    return _page(style, f'<article><div class="output">{body}</div></article>')


PAGES = {page.__name__: page for page in (bare, notebook, documentation)}


def _page(head: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>picture</title>'
        f"{head}<body>{body}</body></html>"
    )
