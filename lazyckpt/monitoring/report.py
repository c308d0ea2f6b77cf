"""The result of a profile: a table, HTML, a plot, a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from textwrap import wrap
from typing import Any

from lazyckpt.core.lines import columns
from lazyckpt.explanation.layout import LINE
from lazyckpt.pictures.html import caption, framed, remark
from lazyckpt.pictures.tables import Table
from lazyckpt.timers.timings import Span

_WIDTH = 44  # characters of a stage
_NAMES = ("stage", "time", "share", "waiting", "items", "per item", "bytes")


@dataclass(frozen=True)
class StageProfile:
    """The measurements of a stage, over all workers.

    Attributes:
        name: The stage as code.
        depth: Number of enclosing stages that join pipelines.
        seconds: Time spent in the stage, without the stages before it.
        working: The part of `seconds` in which the processor worked.
        items: Number of items computed.
        bytes: Approximate total size of these items.
    """

    name: str
    depth: int
    seconds: float
    working: float
    items: int
    bytes: float

    @property
    def waiting(self) -> float:
        """Seconds spent waiting: for files, the network, a lock or a busy processor."""
        return max(0.0, self.seconds - self.working)


@dataclass(frozen=True)
class WorkerProfile:
    """The measurements of a worker.

    Attributes:
        name: Its name.
        seconds: Time spent in stages.
        working: The part of `seconds` in which the processor worked.
        stages: Time spent in each stage, in their order.
        process: The id of its process.
        thread: The id of its thread.
    """

    name: str
    seconds: float
    working: float
    stages: tuple[float, ...]
    process: int
    thread: int


@dataclass(frozen=True, repr=False)
class Profile:
    """The measurements of each stage and each worker; made by `lazyckpt.profile`.

    Attributes:
        items: Number of items read.
        seconds: Time that reading took.
        first: Time until the first item, including the start of workers.
        stages: Each stage, starting with the source; stages of joined pipelines come before the
            stage that joins them.
        workers: Each worker; without an executor, the thread that read.
        bottleneck: The slow stage, and what to do about it.
        executor: The executor of the run.
        warnings: Stages that drew from a global random generator.
    """

    items: int
    seconds: float
    first: float
    stages: tuple[StageProfile, ...]
    workers: tuple[WorkerProfile, ...]
    bottleneck: str
    executor: str
    spans: tuple[tuple[int, int, list[Span]], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Items per second."""
        return self.items / self.seconds if self.seconds else 0.0

    def __repr__(self) -> str:
        return f"<profile of {self._summary()}: {self.bottleneck}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def to_text(self, width: int = LINE) -> str:
        """Return the text for a terminal of `width` columns."""
        said = [*self._worker_lines(), self.bottleneck, *self._warning_lines()]
        lines = [*wrap(self._summary(), width), self._table().to_text(width)]
        return "\n".join([*lines, *(line for text in said for line in wrap(text, width))])

    def __str__(self) -> str:
        return self.to_text(min(LINE, columns(LINE)))

    def _summary(self) -> str:
        text = f"{self.items:,} items in {said_time(self.seconds)}, {said_rate(self.rate)}"
        return f"{text}, by {self.executor}; first item after {said_time(self.first)}"

    def _table(self) -> Table:
        total = sum(stage.seconds for stage in self.stages) or 1.0
        rows = [
            (
                "  " * stage.depth + cut_name(stage.name, _WIDTH - 2 * stage.depth),
                said_time(stage.seconds),
                f"{stage.seconds / total:.0%}",
                f"{stage.waiting / stage.seconds:.0%}" if stage.seconds > 0.01 * total else "",
                f"{stage.items:,}",
                said_time(stage.seconds / stage.items) if stage.items else "",
                said_size(stage.bytes / stage.items) if stage.items and stage.bytes else "",
            )
            for stage in self.stages
        ]
        return Table(_NAMES, rows, _NAMES[1:], [stage.seconds / total for stage in self.stages])

    def _worker_lines(self) -> Iterator[str]:
        if len(self.workers) > 1:
            for each in self.workers:
                busy, waits = each.seconds / (self.seconds or 1), each.seconds - each.working
                yield (
                    f"{each.name}: busy {min(1.0, busy):.0%} of the time, "
                    f"{said_time(each.seconds)} including {said_time(max(0.0, waits))} of waiting"
                )

    def _warning_lines(self) -> Iterator[str]:
        return (f"warning: {each}" for each in self.warnings)

    def _repr_html_(self) -> str:
        remarks = "".join(map(remark, [*self._worker_lines(), self.bottleneck]))
        warned = "".join(remark(text, is_warning=True) for text in self._warning_lines())
        head = caption("profile", [self._summary()])
        return framed(f"{head}{self._table().to_html('stage')}{remarks}{warned}", "profile")

    def plot(self, ax: Any = None) -> Any:
        """Draw a bar per stage: the time it worked, and the time it waited.

        Args:
            ax: Matplotlib axes to draw on; by default new ones.

        Returns:
            The axes.

        Raises:
            ImportError: If Matplotlib is not installed: `pip install "lazyckpt[plot]"`.
        """
        if ax is None:
            try:
                plt = import_module("matplotlib.pyplot")
            except ImportError as error:
                raise ImportError(
                    f'Profile.plot: pip install "lazyckpt[plot]" ({error})'
                ) from error
            height = 1.2 + 0.4 * len(self.stages)
            ax = plt.subplots(figsize=(7, height), layout="constrained")[1]
        names = ["  " * each.depth + cut_name(each.name) for each in self.stages]
        places = range(len(names))
        working = [each.seconds - each.waiting for each in self.stages]
        waiting = [each.waiting for each in self.stages]
        ax.barh(places, working, label="working")
        ax.barh(places, waiting, left=working, label="waiting")
        ax.set_yticks(places, [name.replace("$", r"\$") for name in names])
        ax.invert_yaxis()
        ax.set_xlabel("seconds")
        ax.legend()
        return ax

    def chrome_trace(self) -> dict[str, Any]:
        """Return the first calls of each stage, in the Trace Event Format.

        Returns:
            A dict for `json.dumps`; chrome://tracing and ui.perfetto.dev show it.
        """
        start = min((begun for *_, spans in self.spans for _, begun, _ in spans), default=0.0)
        events: list[dict[str, Any]] = [
            {
                "name": self.stages[stage].name,
                "cat": "stage",
                "ph": "X",
                "ts": round((begun - start) * 1e6, 3),
                "dur": round((ended - begun) * 1e6, 3),
                "pid": process,
                "tid": thread,
            }
            for process, thread, spans in self.spans
            for (stage, _), begun, ended in spans
        ]
        for each in self.workers:
            of_thread = {"ph": "M", "pid": each.process, "tid": each.thread}
            events.append({"name": "thread_name", **of_thread, "args": {"name": each.name}})
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def to_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write `chrome_trace` to a file.

        Args:
            path: Path of the file.
        """
        Path(path).write_text(json.dumps(self.chrome_trace()), "utf-8")


def cut_name(text: str, width: int = _WIDTH) -> str:
    """Shorten a name to `width` characters."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= max(12, width) else text[: max(12, width) - 3] + "..."


def said_time(seconds: float) -> str:
    """Format a time with a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns" if seconds else "0"


def said_rate(rate: float) -> str:
    """Format a rate, such as `1,042 per second`."""
    return f"{rate:,.0f} per second" if rate >= 100 else f"{rate:.3g} per second"


def said_size(size: float) -> str:
    """Format a size with a suitable unit."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= each:
            return f"{size / each:.3g} {unit}"
    return f"{size:.0f} B"
