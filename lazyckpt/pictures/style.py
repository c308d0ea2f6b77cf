"""The style of figures in HTML, for pages light and dark, wide and narrow."""

_WIDE = """
.lzp{--line:color-mix(in srgb,currentColor 45%,transparent);
 --quiet:color-mix(in srgb,currentColor 78%,transparent);
 --face:color-mix(in srgb,currentColor 4%,transparent);
 --accent:color-mix(in srgb,currentColor 25%,#3b82f6);
 font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
 container:lzp/inline-size;width:100%;margin:6px 0;text-align:start;overflow-wrap:anywhere}
.lzp *{box-sizing:border-box}
.lzp bdi{direction:ltr}
.lzp-head{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline;margin:0 0 8px}
.lzp-title{font-weight:650}
.lzp-fact{color:var(--quiet)}
.lzp-bar{height:6px;max-width:420px;margin:0 0 10px;border-radius:3px;overflow:hidden;
 background:color-mix(in srgb,currentColor 14%,transparent)}
.lzp-bar>div{height:100%;border-radius:3px;background:var(--accent)}
.lzp-flow{display:flex;flex-wrap:wrap;align-items:center;gap:10px 0;min-width:0;max-width:100%}
.lzp-step{display:flex;align-items:center;min-width:0;max-width:100%}
.lzp-step:not(:last-child)::after{content:"";flex:none;width:26px;height:9px;margin:0 3px;
 background:
 linear-gradient(var(--line),var(--line)) 0 50%/18px 1.5px no-repeat,
 conic-gradient(from 245deg at 100% 50%,var(--line) 50deg,#0000 0) 100% 50%/9px 9px no-repeat}
.lzp-card{min-width:max(76px,calc(var(--words)*1ch + 27px));max-width:270px;
 padding:7px 12px 6px;border:1px solid var(--line);
 border-radius:9px;background:var(--face)}
.lzp-source{background:color-mix(in srgb,currentColor 8%,transparent)}
.lzp-owns{border-inline-start:3px solid var(--accent)}
.lzp-name{font-weight:650}
.lzp-args{font:12px/1.5 ui-monospace,"SFMono-Regular",Menlo,Consolas,"DejaVu Sans Mono",monospace}
.lzp-marks{display:flex;flex-wrap:wrap;gap:0 9px;margin-top:2px;font-size:11px;color:var(--quiet)}
.lzp-marks span{cursor:help;white-space:nowrap}
.lzp-place{width:fit-content;max-width:100%;margin:3px 0 2px;padding:1px 8px;border-radius:6px;
 font:600 12px/1.5 ui-monospace,"SFMono-Regular",Menlo,Consolas,"DejaVu Sans Mono",monospace;
 background:color-mix(in srgb,#3b82f6 20%,transparent)}
.lzp-note{padding:4px 10px;border:1px dashed var(--line);border-radius:9px;color:var(--quiet)}
.lzp-join{min-width:0;margin-inline-end:26px;position:relative}
.lzp-join::after{content:"";position:absolute;left:100%;top:calc(50% - 4.5px);width:23px;height:9px;
 background:linear-gradient(var(--line),var(--line)) 0 50%/15px 1.5px no-repeat,
 conic-gradient(from 245deg at 100% 50%,var(--line) 50deg,#0000 0) 100% 50%/9px 9px no-repeat}
.lzp-branch{display:flex;align-items:center;position:relative;padding:6px 0}
.lzp-branch::after{content:"";position:absolute;right:0;top:0;bottom:0;
 border-right:1.5px solid var(--line)}
.lzp-branch:first-child::after{top:50%}
.lzp-branch:last-child::after{bottom:calc(50% - 1px)}
.lzp-branch>.lzp-flow{padding:6px;border-radius:12px;
 background:color-mix(in srgb,currentColor 4%,transparent)}
.lzp-wire{flex:1 0 auto;min-width:26px;height:0;border-top:1.5px solid var(--line)}
.lzp-wire span{display:block;width:fit-content;max-width:90px;margin-inline-start:auto;
 padding:0 8px 1px;font-size:11px;color:var(--quiet);transform:translateY(-100%)}
.lzp-table{display:grid;grid-template-columns:repeat(var(--columns),auto);justify-content:start;
 gap:0 18px;max-width:100%;font-size:12px}
.lzp-row{display:grid;grid-template-columns:subgrid;grid-column:1/-1;padding:3px 6px;
 border-top:1px solid color-mix(in srgb,currentColor 16%,transparent)}
.lzp-names{border-top:0;font-weight:600;color:var(--quiet)}
.lzp-row span{min-width:0}
.lzp-row .lzp-right{text-align:end}
.lzp-share{height:4px;min-width:1px;background:#2a78b5}
.lzp-row .lzp-code{min-width:18ch;white-space:pre-wrap;
 font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.lzp-section{grid-column:1/-1;font-weight:600}
.lzp-remark{max-width:100ch;margin:8px 0 0;font-size:12px;color:var(--quiet)}
.lzp-warning{padding-inline-start:10px;color:inherit;border-inline-start:3px solid #d97706}
"""
_NARROW = """
.lzp-flow{flex-direction:column;align-items:stretch;gap:0}
.lzp-step{flex-direction:column;align-items:stretch}
.lzp-step:not(:last-child)::after,.lzp-join::after{width:9px;height:22px;margin:1px 0 1px 22px;
 background:linear-gradient(var(--line),var(--line)) 50% 0/1.5px 14px no-repeat,
 conic-gradient(from 335deg at 50% 100%,var(--line) 50deg,#0000 0) 50% 100%/9px 9px no-repeat}
.lzp-card{min-width:0;max-width:none}
.lzp-join{margin:0}
.lzp-join::after{display:block;position:static}
.lzp-branch{flex-direction:column;align-items:stretch;padding:0 0 8px 12px}
.lzp-branch::after{left:0;right:auto;border:0;border-left:1.5px solid var(--line)}
.lzp-branch:first-child::after{top:0}
.lzp-branch:last-child::after{bottom:0}
.lzp-wire{order:-1;height:auto;border:0;min-width:0}
.lzp-wire span{transform:none;margin:0;padding:0}
.lzp-table{display:block}
.lzp-row{display:flex;flex-wrap:wrap;gap:0 12px}
.lzp-row .lzp-code{min-width:0}
.lzp-row span:has(bdi:empty),.lzp-names{display:none}
.lzp-row span+span::before{content:attr(title) ": ";color:var(--quiet)}
"""


def _style(scope: str, width: int) -> str:
    narrow = f"@container lzp (max-width:{width}px){{{scope}{{{_NARROW}}}}}"
    return f"<style>{''.join(f'{_WIDE}{narrow}'.splitlines())}</style>"


STYLE = _style(".lzp", 600)
DEEP_STYLE = _style(".lzp-deep", 1100)  # of rows within rows within rows
