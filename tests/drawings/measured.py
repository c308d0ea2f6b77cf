"""Figures as bars: the bytes of a checkpoint beside those of other libraries."""

from __future__ import annotations

import json
import math
from typing import Any

from tests.drawings.svg import Drawing
from tests.pages import ROOT

RESULTS = ROOT / "tests/benchmarks/results.json"
GROUPS = {
    "W4 lines, buffered shuffle: bytes of a state": "Lines of files through a shuffle's buffer",
    "W4 items, full shuffle: bytes of a state": "Items with random access, shuffled",
    "W9 mixture of 1,000 sources: a state": "A mixture of 1,000 sources",
}
NAMES = {"nodes": "nodes of torchdata", "seqtools": "SeqTools", "infinibatch": "Infinibatch"}
LEFT, DECADE, HIGH = 134, 42, 22
TICKS = {0: "1 B", 2: "100 B", 3: "1 kB", 4: "10 kB", 5: "100 kB", 6: "1 MB"}


def checkpoint_bytes() -> Drawing:
    """A bar for each library, on a scale of powers of ten."""
    rows = json.loads(RESULTS.read_text("utf-8"))["rows"]
    drawing = Drawing(
        "Bars on a logarithmic scale: bytes of a checkpoint of each library. lazyckpt takes less "
        "than 200 B after either shuffle, and some 40 B per source of a mixture. SeqTools and "
        "grain, which keep an index, take less after a shuffle with random access; Infinibatch, "
        "which keeps the buffer, takes more than 1 MB"
    )
    top = 0.0
    for compared, title in GROUPS.items():
        found = sorted(
            (row for row in rows if _of_library(row, compared)),
            key=lambda row: float(row["median"]),
        )
        drawing.text(6, top + 18, title, "bold")
        begin, top = top + 28, top + 28 + HIGH * len(found)
        for power in TICKS:
            drawing.line(f"M{LEFT + DECADE * power} {begin - 2}V{top}", "faint")
        for n, row in enumerate(found):
            _bar(drawing, begin + HIGH * n, row)
        top += 8
    for power, text in TICKS.items():
        drawing.text(LEFT + DECADE * power, top + 8, text, "small quiet", "middle")
    drawing.height = top + 18
    return drawing


def _of_library(row: dict[str, Any], compared: str) -> bool:
    is_library = row["values"] and row["contestant"] != "by hand"
    return bool(is_library) and f"{row['name']} {row['compared']}" == compared


def _bar(drawing: Drawing, top: float, row: dict[str, Any]) -> None:
    name, size = row["contestant"], float(row["median"])
    is_ours, wrong = name == "lazyckpt", "not exact" in row["remark"]
    width = DECADE * math.log10(size)
    drawing.text(LEFT - 6, top + 14, NAMES.get(name, name), "bold blue" * is_ours, "end")
    drawing.box(LEFT, top + 1, width, 17, "", "blue" * is_ours or "dashed" * wrong)
    told = f"{size:,.0f} B" + f", {row['remark']}" * wrong
    drawing.text(LEFT + width + 6, top + 14, told, "small bold blue" if is_ours else "small")
