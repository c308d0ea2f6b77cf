"""What was measured: as lines of a table, as JSON, and in the tables of the documentation."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    "toolz",
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
COMPARED = {  # by the headings of the comparison
    "Stop and resume": (
        "W4 lines, buffered shuffle: bytes of a state",
        "W4 lines, buffered shuffle: resume at 50 %",
        "W4 lines, shuffled in blocks: resume at 50 %",
        "W4 items, full shuffle: bytes of a state",
        "W4 items, full shuffle: resume at 50 %",
        "W9 mixture of 1,000 sources: a state",
        "W11 Parquet: resume at 50 %",
    ),
    "Cost per item": (
        "W1 ints through map, filter, batch of 32",
        "W2 rows of arrays, shuffled, in batches of 256",
        "W9 mixture of 1,000 sources",
        "W10 documents packed whole, first fit",
    ),
    "Workers, and the start of a process": (
        "W5a arrays of 1 MB from another process",
        "W6 1 ms of Python an item, 2 processes",
        "W7 a new process: imports, the first item",
    ),
    "Files": (
        "W11 JSON lines: shuffled globally",
        "W11 tar: in order",
    ),
}
INEXACT = {  # in cells, and below the table
    "not exact the second time": ("‡", "Exact after one resume, but not after a second one"),
    "not exact": ("†", "The items after a resume are not those of an uninterrupted run"),
}
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
        "**Infinibatch** resumes faster after a buffered shuffle, in {theirs} against {ours}. It "
        "writes the buffer into the checkpoint; lazyckpt reads the buffer again.",
    ),
    (
        "infinibatch",
        "W7 a new process: imports, the first item",
        "**Infinibatch** starts a new process faster, in {theirs} against {ours}: it imports less.",
    ),
    (
        "seqtools",
        "W4 items, full shuffle: bytes of a state",
        "**SeqTools** needs only an index if everything has {{term}}`random access`: {theirs} "
        "against {ours}.",
    ),
    (
        "grain",
        "W4 items, full shuffle: bytes of a state",
        "**grain** has a smaller state for a full shuffle, {theirs} against {ours}: one number.",
    ),
    (
        "grain",
        "W9 mixture of 1,000 sources: a state",
        "**grain** has a smaller state for a mixture of 1,000 sources, {theirs} against {ours}: it "
        "computes the position of each source from the number of the item.",
    ),
    (
        "grain",
        "W11 Parquet: resume at 50 %",
        "**grain** resumes a Parquet file faster, in {theirs} against {ours}.",
    ),
    (
        "toolz",
        "W1 ints through map, filter, batch of 32",
        "**toolz** takes {theirs} per item against {ours} for plain Python functions on small "
        "items; it keeps no state.",
    ),
    (
        "toolz",
        "W7 a new process: imports, the first item",
        "**toolz** starts a new process in {theirs} against {ours}.",
    ),
)


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
    """The page with some figures of other libraries, in a table per kind of workload."""
    rows = rows_of(json.loads(path.read_text("utf-8")))
    some = [row for row in contests(rows) if row.contestant in LIBRARIES]
    parts = [
        f"### {heading}\n\n{beside(some, LIBRARIES, names)}" for heading, names in COMPARED.items()
    ]
    text = between("peers", text, "\n".join(parts))
    return between("ahead", text, "\n".join([*ahead(some), ""]))


def in_readme(text: str, path: Path) -> str:
    """The README with a few, the best of all libraries in bold."""
    rows = rows_of(json.loads(path.read_text("utf-8")))
    some = [row for row in contests(rows) if row.contestant in LIBRARIES]
    found = beside(some, (OURS, *IN_README), ROWS_OF_README)
    return between("peers", text, found)


def beside(rows: Sequence[Row], libraries: Sequence[str], compared: Sequence[str]) -> str:
    """A table of some libraries and some rows, with the best of all libraries in bold."""
    chosen = [row for name in compared for row in rows if f"{row.name} {row.compared}" == name]
    head, *lines = of_contests(chosen, libraries, lambda row: row.compared)
    some = [cells[:-2] for cells in (head, *lines)]
    return "\n".join([*table(*some), *footnotes(some)])


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
        *lost(rows),
        *workloads([row for row in rows if row.name != "shuffles"]),
        *section("Ratio to the same code by hand", "1 is as fast as by hand.", of_ratios(rows)),
        *of_growth(rows),
        *section("Shuffles", "Distances are in buffers.", of_shuffles(rows)),
    ]
    return "".join(f"{part}\n" for part in parts).replace("\n\n\n", "\n\n")


def about(found: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    return (
        f"Measured on {found['date']}: {found['machine']}, load average {found['load']:g} at the "
        f"start. Medians of up to {found['rounds']} interleaved rounds. Each library is used as "
        "its documentation recommends; if there are several ways, the fastest counts.\n\n"
        f"Versions: Python {found['python']}, NumPy {found['numpy']}, lazyckpt "
        f"{found['lazyckpt']}, {packages}.\n"
    )


def behind(rows: Sequence[Row]) -> str:
    each = [f"{what} ({ratio})" for what, _, ratio in faster(rows)]
    return f"{count(rows)}: {'; '.join(each)}.\n" if each else f"{count(rows)}.\n"


def lost(rows: Sequence[Row]) -> Iterator[str]:
    """The sentence, and a table of the rows in which another library is ahead."""
    each = [*faster(rows)]
    yield f"{count(rows)}{':' if each else '.'}\n"
    if each:
        yield from table(["workload", "ahead", "ratio"], *each)


def count(rows: Sequence[Row]) -> str:
    compared = [row for row in rows if row.to_peer]
    return f"Another library is ahead in {len([*faster(rows)])} of {len(compared)} rows"


def faster(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Each row in which another library is ahead: the row, the library, the ratio."""
    for row in rows:
        if row.to_peer and row.to_peer > 1:
            library = row.remark.partition("behind ")[2].partition(",")[0]
            yield [f"{row.name} {row.compared}", library, f"{row.to_peer:,.2f}"]


def section(heading: str, words: str, lines: Iterable[Sequence[str]]) -> list[str]:
    head, *body = lines
    return [f"### {heading}\n", f"{words}\n", *table(head, *body)] if body else []


def table(head: Sequence[str], *body: Sequence[str]) -> Iterator[str]:
    """A table without empty columns. Its units are written as pages write them."""
    if not body:
        return
    filled = [
        any(cell not in ("", NO_WAY) for cell in column) for column in zip(*body, strict=True)
    ]
    for cells in (head, ["---"] * len(head), *body):
        kept = [cell for cell, is_filled in zip(cells, filled, strict=True) if is_filled]
        yield per(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in kept)} |")
    yield ""


def per(words: str) -> str:
    return re.sub(r"\ban? (item|row|MB)\b", r"per \1", words)


def workloads(rows: Sequence[Row]) -> Iterator[str]:
    """A table for each workload, and the libraries that have no figure."""
    libraries = [*dict.fromkeys((BY_HAND, OURS, *PEERS, *(row.contestant for row in rows)))]
    some = [row for row in rows if row.contestant or row.remark.startswith("has no way")]
    for (name, what), group in groupby(some, key=lambda row: (row.name, kind(row)[0])):
        found = [*group]
        head, *lines = of_contests(found, libraries, lambda row: kind(row)[1])
        yield f"### {name}: {per(what)}\n"
        yield from table(head, *lines)
        yield from footnotes(lines)
        yield from absent([row for row in found if not row.values])


def kind(row: Row) -> tuple[str, str]:
    """The workload of a row, and what was measured of it."""
    what, _, figure = row.compared.partition(": ")
    return what, figure or "an item"


def absent(rows: Iterable[Row]) -> Iterator[str]:
    said = [f"{row.contestant}: {row.remark.partition(':')[0]}." for row in rows if row.contestant]
    none = [row.remark.partition(": ")[2] for row in rows if not row.contestant]
    yield " ".join([*said, *(f"No way to do it: {names}." for names in none)]) + "\n"


def footnotes(lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """What the marks in the cells of a table mean."""
    cells = "".join(cell for line in lines for cell in line)
    notes = [f"{mark} {meaning}." for mark, meaning in INEXACT.values() if f" {mark}" in cells]
    if notes:
        yield f"{' '.join(notes)}\n"


def of_contests(
    rows: Sequence[Row], libraries: Sequence[str], words: Callable[[Row], str]
) -> Iterator[list[str]]:
    """A column for each library that has a figure, the least of each line in bold."""
    measured = [row for row in rows if row.values]
    names = [name for name in libraries if any(row.contestant == name for row in measured)]
    yield ["measured", "unit", *names, "ratio to by hand", "ratio to best other"]
    for _, group in groupby(measured, key=lambda row: (row.name, row.compared)):
        found = {row.contestant: row for row in group}
        fair = [row.median for row in found.values() if row.contestant != BY_HAND and exact(row)]
        best = min(fair, default=0.0)
        first = next(iter(found.values()))
        cells = [cell(found[name], best) if name in found else NO_WAY for name in names]
        yield [words(first), first.unit, *cells, *ratios(found.get(OURS, first))]


def exact(row: Row) -> bool:
    return "not exact" not in row.remark


def cell(row: Row, best: float) -> str:
    marks = [mark for words, (mark, _) in INEXACT.items() if row.remark.endswith(words)]
    text = " ".join([number(row.median), *marks])
    return f"**{text}**" if row.median == best > 0 and row.contestant != BY_HAND else text


def ratios(ours: Row) -> list[str]:
    return ["" if ratio is None else f"{ratio:,.2f}" for ratio in (ours.to_hand, ours.to_peer)]


def number(value: float) -> str:
    """Three digits, as one reads them."""
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if abs(short) >= 100 else f"{short:g}"


def of_ratios(rows: Sequence[Row]) -> Iterator[list[str]]:
    yield ["compared", "median", "min", "max", "bound", ""]
    for row in rows:
        if row.values and not row.contestant and row.name != "W8":
            values = [number(value) for value in (row.median, min(row.values), max(row.values))]
            bound = "" if row.bound is None else f"{row.bound:.3g}"
            missed = "missed" if row.met == "NO" else ""
            unit = f", {row.unit}" if row.unit else ""
            yield [f"{row.name} {row.compared}{unit}", *values, bound, missed]
        elif not row.contestant and row.remark.startswith(("failed", "not installed")):
            yield [row.name, row.remark, "", "", "", ""]


def of_growth(rows: Sequence[Row]) -> Iterator[str]:
    """A table for each thing that grows, with a column for each size."""
    grown = [row for row in rows if row.name == "W8" and row.values]
    if grown:
        yield "### W8: scaling\n"
        yield "The slope of log(figure) over log(n): 0 doesn't depend on n, 1 grows linearly.\n"
    for what, group in groupby(grown, key=lambda row: row.compared.rpartition(", ")[0]):
        found = [*group]
        head = [what, "unit", *(f"n = {size}" for size, _ in sizes(found[0])), "slope", ""]
        yield from table(head, *map(line_of_growth, found))


def line_of_growth(row: Row) -> list[str]:
    figure = row.compared.removesuffix(": slope").rpartition(", ")[2]
    said, _, each = row.remark.partition("; ")
    unit = each.partition(" of ")[0]
    return [figure, unit, *(cell for _, cell in sizes(row)), f"{row.median:.2f}", said]


def sizes(row: Row) -> Iterator[tuple[str, str]]:
    """Each size, and what was measured there."""
    for pair in row.remark.partition(" of ")[2].split(", "):
        size, _, value = pair.partition(": ")
        yield size, number(float(value.replace(",", "")))


def of_shuffles(rows: Sequence[Row]) -> Iterator[list[str]]:
    yield [
        "order",
        "half of all items move further than",
        "largest move to the front",
        "largest move to the back",
        "correlation of neighbours",
        "chi-square of pairs per degree of freedom",
        "range of the mean within a buffer",
    ]
    shuffles = [row for row in rows if row.name == "shuffles"]
    for name, group in groupby(shuffles, key=lambda row: row.contestant):
        moved, *others = group
        half = sorted(map(abs, moved.values))[len(moved.values) // 2]
        lengths = [f"{x:.2f}" for x in (half, -min(moved.values), max(moved.values))]
        figures = [f"{row.median:.2f}".replace("-0.00", "0.00") for row in others]
        yield [name, *lengths, *figures]
