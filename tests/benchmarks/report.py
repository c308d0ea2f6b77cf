"""What was measured: as lines of a table, as JSON, as a picture."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import shuffles
from contest import BY_HAND, OURS
from harness import Row

import lazyckpt

PACKAGES = [
    "infinibatch",
    "grain",
    "torch",
    "torchdata",
    "datasets",
    "webdataset",
    "SeqTools",
    "mosaicml-streaming",
    "toolz",
    "cytoolz",
]
LINE = "{:<10}{:<62} {:<12}{:>11}{:>11}{:>11} {:<4}{:>8}{:>8}{:>8} {:<4}{}"
HEAD = ["name", "compared", "by", "median", "min", "max", "unit", "/hand", "/peer", "bound", "met"]


class Report:
    """The rows so far. A file of JSON, where asked for, has each as soon as it is measured."""

    def __init__(self, path: Path | None, rounds: int) -> None:
        self.path = path
        self.rows: list[Row] = []
        self.about: dict[str, Any] = {
            "lazyckpt": lazyckpt.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": machine(),
            "date": datetime.now(UTC).date().isoformat(),
            "load": round(os.getloadavg()[0], 1),
            "packages": {name: found for name in PACKAGES if (found := _version(name))},
            "rounds": rounds,
        }
        self.write()

    def begin(self) -> None:
        said = "lazyckpt {lazyckpt}, Python {python}, NumPy {numpy}, {rounds} rounds"
        print(f"{said}, {{machine}}, load {{load}}".format(**self.about))
        print(LINE.format(*HEAD, "remark"))

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(shown(row), flush=True)
        self.write()

    def write(self) -> None:
        """Whole or not at all: a run that is ended while it writes leaves the file before."""
        if self.path:
            part = self.path.with_name(self.path.name + ".part")
            about = json.dumps(self.about, indent=1).removesuffix("\n}")
            rows = ",\n  ".join(json.dumps(row.to_json()) for row in self.rows)
            part.write_text(f'{about},\n "rows": [\n  {rows}\n ]\n}}\n')
            part.replace(self.path)

    def end(self) -> None:
        """Where we are behind, said once more where it can't be overlooked."""
        lost = [row for row in self.rows if row.lost]
        print(f"\nbehind another library or a bound in {len(lost)} of {len(self.rows)} rows")
        for row in lost:
            print(f"  {row.name}  {row.compared}  {row.remark or f'bound {row.bound:g}'}")


def shown(row: Row) -> str:
    blank = ("", "", "")
    figures = _figures(row) if row.values else blank
    ratios = ["" if r is None else f"{r:,.2f}" for r in (row.to_hand, row.to_peer)]
    bound = "" if row.bound is None else f"{row.bound:,.4g}"
    unit, met = (row.unit or "x", row.met) if row.values else ("", "")
    remark = row.sides or row.remark
    by = row.contestant
    return LINE.format(
        row.name, row.compared[:62], by, *figures, unit, *ratios, bound, met, remark
    ).rstrip()


def _figures(row: Row) -> tuple[str, ...]:
    return tuple(f"{v:,.2f}" for v in (row.median, min(row.values), max(row.values)))


def machine() -> str:
    """The processor's name, the cores that this process may use, and the memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        models = [line for line in about.read_text().splitlines() if line.startswith("model name")]
        name = models[0].split(":")[1].strip() if models else name
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{name}, {cores} cores, {memory:.0f} GiB"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def plot(rows: Sequence[Row], path: Path) -> None:
    """A panel of medians for each contest, and one of all ratios to what is written by hand.

    Of shuffles alone, a picture of each.
    """
    if rows and all(row.name == "shuffles" for row in rows):
        shuffles.picture(path)
        return

    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    contests: dict[str, list[Row]] = {}
    for row in rows:
        if row.contestant and row.values:
            contests.setdefault(f"{row.name}: {row.compared} ({row.unit})", []).append(row)
    pairs = [row for row in rows if row.to_hand and not row.contestant]
    panels = [*contests.items(), *([("ratios to the same by hand", pairs)] if pairs else [])]
    if not panels:
        return
    heights = [len(found) + 2 for _, found in panels]
    figure, all_axes = plt.subplots(
        len(panels),
        figsize=(9, 0.3 * sum(heights) + 1),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axes, (title, found) in zip(all_axes[:, 0], panels, strict=True):
        _panel(axes, title, found)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _panel(axes: Any, title: str, found: Sequence[Row]) -> None:
    names = [row.contestant or f"{row.name} {row.compared}"[:60] for row in found]
    colours = {OURS: "tab:orange", BY_HAND: "tab:gray"}
    medians = [row.median for row in found]
    spread = [[row.median - min(row.values) for row in found]]
    spread += [[max(row.values) - row.median for row in found]]
    axes.barh(
        range(len(found)),
        medians,
        xerr=spread,
        color=[colours.get(name, "tab:blue") for name in names],
        error_kw={"lw": 0.7},
    )
    axes.set_yticks(range(len(found)), names, fontsize=7)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=8, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    positive = [value for value in medians if value > 0]
    if len(positive) == len(medians) and max(positive) > 30 * min(positive):
        axes.set_xscale("log")
