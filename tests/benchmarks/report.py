"""Write measurements: as lines of a table, as JSON, and into the tables of the documentation."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from harness import BY_HAND, OURS, PEERS, Row

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
PAGES = Path(__file__).parents[2] / "notebooks/explanation"
PAGE, BESIDE, README = PAGES / "performance.md", PAGES / "peers.md", PAGES.parents[1] / "README.md"
NO_WAY = "-"
LIBRARIES = (
    OURS,
    "infinibatch",
    "seqtools",
    "grain",
    "torchdata",
    "nodes",
    "datasets",
    "webdataset",
    "toolz",
)
COMPARED = (
    "W1 ints through map, filter, batch of 32",
    "W2 rows of arrays, shuffled, in batches of 256",
    "W4 lines, buffered shuffle: bytes of a state",
    "W4 lines, buffered shuffle: resume at 50 %",
    "W4 lines, shuffled in blocks: resume at 50 %",
    "W4 items, full shuffle: bytes of a state",
    "W4 items, full shuffle: resume at 50 %",
    "W5a arrays of 1 MB from another process",
    "W6 1 ms of Python an item, 2 processes",
    "W7 a new process: imports, the first item",
    "W9 mixture of 1,000 sources",
    "W9 mixture of 1,000 sources: a state",
    "W10 documents packed whole, first fit",
    "W11 JSON lines: shuffled globally",
    "W11 Parquet: resume at 50 %",
    "W11 tar: in order",
)
IN_README = ("infinibatch", "grain", "torchdata", "datasets")
ROWS_OF_README = (
    "W2 rows of arrays, shuffled, in batches of 256",
    "W4 lines, buffered shuffle: bytes of a state",
    "W4 lines, buffered shuffle: resume at 50 %",
    "W4 items, full shuffle: bytes of a state",
    "W4 items, full shuffle: resume at 50 %",
    "W5a arrays of 1 MB from another process",
    "W9 mixture of 1,000 sources: a state",
    "W11 Parquet: resume at 50 %",
)
AHEAD = (  # the library that is ahead, in which row, and why
    (
        "infinibatch",
        "W4 lines, buffered shuffle: resume at 50 %",
        "**Infinibatch** resumes sooner after a buffered shuffle, in {theirs} against {ours}. It "
        "writes the buffer into the checkpoint; lazyckpt reads the buffer again.",
    ),
    (
        "infinibatch",
        "W7 a new process: imports, the first item",
        "**Infinibatch** starts a new process sooner, in {theirs} against {ours}: it imports less.",
    ),
    (
        "seqtools",
        "W4 items, full shuffle: bytes of a state",
        "**SeqTools** needs only an index if all has random access: {theirs} against {ours}.",
    ),
    (
        "grain",
        "W4 items, full shuffle: bytes of a state",
        "**grain** has a smaller state of a full shuffle, {theirs} against {ours}: one number.",
    ),
    (
        "grain",
        "W9 mixture of 1,000 sources: a state",
        "**grain** has a smaller state of a mixture of 1,000 sources, {theirs} against {ours}: it "
        "computes the position of each source from the number of the item.",
    ),
    (
        "grain",
        "W11 Parquet: resume at 50 %",
        "**grain** resumes a Parquet file sooner, in {theirs} against {ours}.",
    ),
    (
        "toolz",
        "W1 ints through map, filter, batch of 32",
        "**toolz** takes {theirs} per item against {ours} for plain Python functions on small "
        "items, where there is no state to keep.",
    ),
    (
        "toolz",
        "W7 a new process: imports, the first item",
        "**toolz** starts a new process in {theirs} against {ours}.",
    ),
)


class Report:
    """The rows so far. If a JSON file is requested, each row is written when it is measured."""

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
        """The rows in which we are behind, repeated at the end so that they can't be overlooked."""
        print(f"\n{behind(self.rows)}")


def shown(row: Row) -> str:
    cells = [row.name, row.compared[:62], row.contestant, *[""] * 8]
    if row.values:
        figures = [f"{value:,.2f}" for value in (row.median, min(row.values), max(row.values))]
        bound = "" if row.bound is None else f"{row.bound:,.4g}"
        cells[3:] = [*figures, row.unit or "x", *ratios(row), bound, row.met]
    return LINE.format(*cells, row.sides or row.remark).rstrip()


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


def update(path: Path) -> None:
    """Write the figures of a file into both pages, and some into the README."""
    PAGE.write_text(with_figures(PAGE.read_text("utf-8"), path), "utf-8")
    BESIDE.write_text(with_peers(BESIDE.read_text("utf-8"), path), "utf-8")
    README.write_text(in_readme(README.read_text("utf-8"), path), "utf-8")


def with_figures(text: str, path: Path) -> str:
    """The page with all figures of a file between its two marks."""
    return between("figures", text, written(json.loads(path.read_text("utf-8"))))


def with_peers(text: str, path: Path) -> str:
    """The page with some of the other libraries' rows."""
    rows = rows_of(json.loads(path.read_text("utf-8")))
    some = [row for row in contests(rows) if row.contestant in LIBRARIES]
    text = between("peers", text, beside(some, LIBRARIES, COMPARED))
    return between("ahead", text, "\n".join([*ahead(some), ""]))


def in_readme(text: str, path: Path) -> str:
    """The README with a few, the best of all libraries in bold."""
    rows = rows_of(json.loads(path.read_text("utf-8")))
    some = [row for row in contests(rows) if row.contestant in LIBRARIES]
    found = beside(some, (OURS, *IN_README), ROWS_OF_README)
    return between("peers", text, re.sub(r"^\| W\w+ ", "| ", found, flags=re.MULTILINE))


def beside(rows: Sequence[Row], libraries: Sequence[str], compared: Sequence[str]) -> str:
    """A table of some libraries and some rows."""
    head, *body = of_contests(rows, LIBRARIES)
    columns = [0, 1, *[n for n, name in enumerate(head) if name in libraries]]
    chosen = [head, *[cells for cells in body if cells[0] in compared]]
    first, *rest = [[cells[n] for n in columns] for cells in chosen]
    return "\n".join(table(first, *rest))


def ahead(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence for each row of `AHEAD` in which that library is ahead, with both figures."""
    found = {(row.contestant, f"{row.name} {row.compared}"): row for row in rows if row.values}
    for library, compared, words in AHEAD:
        theirs, ours = found.get((library, compared)), found.get((OURS, compared))
        if theirs is not None and ours is not None and theirs.median < ours.median:
            figures = [f"{number(each.median)} {each.unit}" for each in (theirs, ours)]
            yield f"- {words.format(theirs=figures[0], ours=figures[1])}"


def between(what: str, text: str, figures: str) -> str:
    begin, end = f"<!-- {what} -->\n", f"<!-- end of {what} -->\n"
    before, mark, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not mark or not last:
        raise ValueError(f"no {begin.strip()} and {end.strip()} in the page")
    return f"{before}{mark}\n{figures}\n{last}{after}"


def rows_of(found: dict[str, Any]) -> list[Row]:
    names = [field.name for field in fields(Row)]
    return [Row(**{name: row[name] for name in names}) for row in found["rows"]]


def contests(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.contestant and row.name != "shuffles"]


def written(found: dict[str, Any]) -> str:
    rows = rows_of(found)
    parts = [
        about(found),
        behind(rows),
        *table(*of_contests(contests(rows), (BY_HAND, OURS, *PEERS))),
        *section("Beside the same by hand, in turn, where 1 is as fast:", of_ratios(rows)),
        *section("As data and pipelines grow, n times as large:", of_growth(rows)),
        *section("How well shuffles mix:", of_shuffles(rows)),
    ]
    return "".join(f"{part}\n" for part in parts).replace("\n\n\n", "\n\n")


def about(found: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    return (
        f"Measured on {found['date']}: {found['machine']}, a load of {found['load']:g} when it "
        f"began; Python {found['python']}, NumPy {found['numpy']}, lazyckpt {found['lazyckpt']}, "
        f"{packages}. Medians of up to {found['rounds']} rounds, all contestants in turn, each "
        "library as its documentation advises, the best of its ways.\n"
    )


def behind(rows: Sequence[Row]) -> str:
    ours = [(f"{row.name} {row.compared}", row.to_peer) for row in rows if row.to_peer]
    lost = [f"{what} ({ratio:.2f})" for what, ratio in ours if ratio > 1]
    said = f"Another library is ahead in {len(lost)} of {len(ours)} rows"
    return f"{said}: {'; '.join(lost)}.\n" if lost else f"{said}.\n"


def section(words: str, lines: Iterable[Sequence[str]]) -> list[str]:
    head, *body = lines
    return [f"{words}\n", *table(head, *body)] if body else []


def table(head: Sequence[str], *body: Sequence[str]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *body):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def of_contests(rows: Sequence[Row], libraries: Sequence[str]) -> Iterator[list[str]]:
    """A column for each library, the least of each row in bold."""
    names = [name for name in libraries if any(row.contestant == name for row in rows)]
    yield ["workload", "unit", *names, "to by hand", "to the best other"]
    for _, group in groupby(rows, key=lambda row: (row.name, row.compared.partition(":")[0])):
        yield from of_contest(list(group), names)


def of_contest(rows: Sequence[Row], names: Sequence[str]) -> Iterator[list[str]]:
    outs = {row.contestant: row.remark.partition(":")[0] for row in rows if not row.values}
    measured = [row for row in rows if row.values]
    for what, group in groupby(measured, key=lambda row: row.compared):
        found = {row.contestant: row for row in group}
        fair = [row.median for row in found.values() if row.contestant != BY_HAND and exact(row)]
        best = min(fair, default=0.0)
        cells = [
            cell(found[name], best) if name in found else outs.get(name, NO_WAY) for name in names
        ]
        first = next(iter(found.values()))
        ours = found.get(OURS, first)
        yield [f"{first.name} {what}", first.unit, *cells, *ratios(ours)]


def exact(row: Row) -> bool:
    return "not exact" not in row.remark


def cell(row: Row, best: float) -> str:
    _, wrong, more = row.remark.partition("not exact")
    text = number(row.median) + (f", {wrong}{more}" if wrong else "")
    return f"**{text}**" if row.median == best > 0 and row.contestant != BY_HAND else text


def ratios(ours: Row) -> list[str]:
    return ["" if ratio is None else f"{ratio:,.2f}" for ratio in (ours.to_hand, ours.to_peer)]


def number(value: float) -> str:
    """Three digits, as one reads them."""
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if abs(short) >= 100 else f"{short:g}"


def of_ratios(rows: Sequence[Row]) -> Iterator[list[str]]:
    yield ["compared", "median", "least", "most", "bound", ""]
    for row in rows:
        if row.values and not row.contestant and row.name != "W8":
            values = [number(value) for value in (row.median, min(row.values), max(row.values))]
            bound = "" if row.bound is None else f"{row.bound:.3g}"
            missed = "missed" if row.met == "NO" else ""
            unit = f", {row.unit}" if row.unit else ""
            yield [f"{row.name} {row.compared}{unit}", *values, bound, missed]
        elif not row.contestant and row.remark.startswith(("failed", "not installed")):
            yield [row.name, row.remark, "", "", "", ""]


def of_growth(rows: Sequence[Row]) -> Iterator[list[str]]:
    yield ["of what", "slope", "", "each size"]
    for row in rows:
        if row.name == "W8" and row.values:
            said, _, each = row.remark.partition("; ")
            yield [row.compared.removesuffix(": slope"), f"{row.median:.2f}", said, each]


def of_shuffles(rows: Sequence[Row]) -> Iterator[list[str]]:
    yield [
        "order",
        "half of all items move further than",
        "an item comes earlier by at most",
        "and later by at most",
        "neighbours correlate by",
        "chi-square of pairs, a degree of freedom",
        "mean within a buffer varies by",
    ]
    shuffles = [row for row in rows if row.name == "shuffles"]
    for name, group in groupby(shuffles, key=lambda row: row.contestant):
        moved, *others = group
        half = sorted(map(abs, moved.values))[len(moved.values) // 2]
        lengths = [f"{x:.2f} buffers" for x in (half, -min(moved.values), max(moved.values))]
        figures = [f"{row.median:.2f}".replace("-0.00", "0.00") for row in others]
        yield [name, *lengths, *figures]
