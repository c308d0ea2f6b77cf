"""A Ray actor that keeps the tasks, and references to their outcomes, of one training run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from importlib import import_module
from time import monotonic
from typing import Any, NamedTuple

from lazyckpt.core.content import dumps
from lazyckpt.errors import PipelineError, RankMissing, WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.serialization import Message, send_outcome, serialize, this_process
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.pools.futures import RemoteTask, run_task
from lazyckpt.executors.sharing.link import Reach, least
from lazyckpt.executors.sharing.meeting import differing, late

BEAT = 1.0  # seconds between two reports that a process is alive
_SILENT = 5.0  # seconds without a report after which a new process may replace one
_SETTLED = 1.0  # seconds after which ranks that wait with different settings get an error
_KEPT = 4  # outcomes per worker that some rank hasn't taken yet
_IDLE = 2.0  # seconds to wait for ranks that begin again


def make(run: str, handler: int, payload: Any, serialized: bytes) -> tuple[Message, bytes]:
    """Do a task in a Ray worker, and return its outcome and a digest of it."""
    message = run_task(RemoteTask(run, 0, handler, payload, None, serialized, ""))
    return message, _digest(message.open())


def _digest(outcome: Outcome) -> bytes:
    """Return a digest of the parts of an outcome that each try must reproduce."""
    error = outcome.failure and outcome.failure.error
    plain = outcome._replace(failure=None, seconds=0.0, item_bytes=0.0, timings=None)
    frame, buffers = send_outcome(plain, this_process(), serialize)
    found = blake2b(frame, digest_size=16)
    for buffer in buffers:
        found.update(buffer.data)
    found.update(repr((type(error).__name__, str(error))).encode())
    return found.digest()


class Member(NamedTuple):
    """One rank in one opening.

    Attributes:
        reader: Its name, a new one per opening.
        process: Name of its process.
        rank: Number of the rank.
        size: Number of ranks.
        reach: How far it reads ahead for its own tasks.
    """

    reader: str
    process: str
    rank: int
    size: int
    reach: Reach


class Making(NamedTuple):
    """Settings for doing tasks.

    Attributes:
        serialized: The pickled handlers.
        workers: Number of tasks to run in parallel.
        timeout: Time limit of a task, in seconds.
        patience: Seconds to wait for ranks.
        options: Ray's options for the tasks.
    """

    serialized: bytes
    workers: int
    timeout: float | None
    patience: float
    options: Mapping[str, Any]


class _Task:
    """A task of all ranks.

    Attributes:
        left: The readers that haven't taken its outcome yet.
        asked: The readers that have requested it.
        made: The answer to requests: a reference to the outcome with the number of its try, or
            an error.
        tries: Number of tries.
        digest: Digest of its outcome.
    """

    def __init__(self, handler: int, payload: Any, left: Iterable[str]) -> None:
        self.handler, self.payload, self.left = handler, payload, {*left}
        self.asked: set[str] = set()
        self.made: asyncio.Future[Any] = asyncio.Future()
        self.tries = 1
        self.digest: bytes | None = None


class _Opening:
    """One pass of all ranks through a pipeline, from one position on.

    Attributes:
        told: The settings that are equal on all ranks.
        members: The ranks that have joined, by the names of their readers.
        begun: The least reach, once all ranks have joined, or why they don't begin.
        taken: Number of outcomes that each reader has taken.
        tasks: The tasks whose outcome some rank hasn't taken yet.
        waiting: The tasks among them that haven't started.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told
        self.members: dict[str, Member] = {}
        self.begun: asyncio.Future[PipelineError | Reach] = asyncio.Future()
        self.taken: dict[str, int] = {}
        self.tasks: dict[bytes, _Task] = {}
        self.waiting: dict[bytes, _Task] = {}
        self.making: Making | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def ranks(self) -> list[int]:
        return sorted(each.rank for each in self.members.values())

    def begin(self) -> None:
        """Let the ranks begin."""
        self._ray = import_module("ray")
        assert self.making is not None
        self._serialized = self._ray.put(self.making.serialized)
        options = {"max_retries": 0, **self.making.options, "num_returns": 2}
        self._make = self._ray.remote(make).options(**options)
        self._run = next(iter(self.members))
        self.begun.set_result(least(each.reach for each in self.members.values()))

    def ask(self, reader: str, key: bytes, tries: int, handler: int, payload: Any) -> _Task:
        """Return the task with a key; run it again if the outcome of try `tries` was lost."""
        task = self.tasks.get(key)
        if task is None:
            task = self.tasks[key] = self.waiting[key] = _Task(handler, payload, self.members)
        elif task.tries == tries and task.made.done():
            task.tries, task.made = tries + 1, asyncio.Future()
            self.waiting[key] = task
        task.asked.add(reader)
        return task

    def let_go(self, reader: str, taken: Iterable[bytes], unwanted: Iterable[bytes]) -> None:
        """Note the outcomes that a reader has taken, and those that it doesn't need."""
        for key in taken:
            self.taken[reader] = self.taken.get(reader, 0) + 1
            if (task := self.tasks.get(key)) is not None:
                task.left.discard(reader)
        for key in unwanted:
            if (task := self.tasks.get(key)) is not None:
                task.left.clear()
        self._drop()

    def leave(self, reader: str) -> None:
        """Remove a reader."""
        self.members.pop(reader, None)
        for task in self.tasks.values():
            task.left.discard(reader)
        self._drop()

    def _drop(self) -> None:
        for key in [key for key, task in self.tasks.items() if not task.left]:
            del self.tasks[key]
            self.waiting.pop(key, None)

    def slowest(self) -> set[str]:
        """Return the readers that have taken the fewest outcomes."""
        least = min((self.taken.get(each, 0) for each in self.members), default=0)
        return {each for each in self.members if self.taken.get(each, 0) == least}

    def go_on(self) -> None:
        """Start requested tasks: as many as may be kept, and all that the slowest readers need."""
        assert self.making is not None
        slowest, most = self.slowest(), _KEPT * self.making.workers
        for key, task in list(self.waiting.items()):
            if len(self._under_way) >= self.making.workers:
                return
            if len(self.tasks) - len(self.waiting) < most or task.asked & slowest:
                del self.waiting[key]
                doing = asyncio.ensure_future(self._do(task))
                self._under_way.add(doing)
                doing.add_done_callback(self._done)

    def _done(self, doing: asyncio.Task[None]) -> None:
        self._under_way.discard(doing)
        self.go_on()

    async def _do(self, task: _Task) -> None:
        assert self.making is not None
        seconds, answered = self.making.timeout, task.made
        outcome, digest = self._make.remote(self._run, task.handler, task.payload, self._serialized)
        found: Any = ([outcome], task.tries)
        try:
            made = await asyncio.wait_for(asyncio.wrap_future(digest.future()), seconds)
        except TimeoutError:
            self._ray.cancel(outcome, force=True)
            found = WorkerTimeout(f"no item within {seconds} s, from a Ray worker")
        except Exception as error:
            found = WorkerDied(f"a Ray worker has failed: {type(error).__name__}: {error}")
        else:
            if task.digest not in (None, made):
                found = PipelineError(
                    "ray: items were lost with a node, and came out differently when they were "
                    "made again, so that ranks which had them would differ from those which hadn't"
                )
            task.digest = made
        answered.set_result(found)

    def fail(self, error: Exception) -> None:
        """Answer requests for tasks that haven't started with an error."""
        for task in self.waiting.values():
            task.made.set_result(error)
        self.waiting.clear()


class Keeper:
    """The keeper of one name: its ranks, and their common openings.

    It owns references to outcomes, but doesn't hold the outcomes. It ends after its last rank
    has left.
    """

    def __init__(self) -> None:
        self._ray = import_module("ray")
        self._heard: dict[str, float] = {}
        self._gathering: dict[str, _Opening] = {}
        self._openings: dict[str, _Opening] = {}  # by the names of readers
        self._watch: asyncio.Task[None] | None = None

    async def join(
        self,
        member: Member,
        told: Mapping[str, Any],
        making: Making,
        leaves: str | None,
    ) -> Exception | Reach | None:
        """Wait until all ranks have joined with equal settings; return their least reach.

        Rank 0 provides the handlers. If it fails, return an error; None if the rank has left.
        """
        self.beat(member.process)
        self._watch = self._watch or asyncio.ensure_future(self._look_after(making.patience))
        self._forget(leaves)
        if await self._has_rival(member):
            return PipelineError(
                f"ray: {self._where(member)}, and so does {member.process}: each training needs "
                "a name of its own, and one process for each index of shard"
            )
        name, deadline = dumps(told), monotonic() + making.patience
        opening = self._gathering.setdefault(name, _Opening(told))
        if member.rank in opening.ranks:
            return PipelineError(f"ray: rank {member.rank} has come twice, with the same pipeline")
        opening.members[member.reader] = member
        self._openings[member.reader] = opening
        if member.rank == 0:
            opening.making = making
        if len(opening.members) == member.size:
            del self._gathering[name]
            opening.begin()
        while not opening.begun.done() and member.reader in self._openings:
            await asyncio.wait({opening.begun}, timeout=_SETTLED)
            self._tell_difference()
            if not opening.begun.done() and monotonic() > deadline:
                there = opening.ranks
                missing = sorted({*range(member.size)} - {*there})
                text = f"ray: {late(making.patience, missing, there)}"
                # To all of them, as this rank doesn't wait any more.
                self._refuse([opening], RankMissing(text, missing))
        return opening.begun.result() if opening.begun.done() else None

    async def ask(
        self,
        reader: str,
        key: bytes,
        tries: int,
        task: tuple[int, Any],
        gone: tuple[Iterable[bytes], Iterable[bytes]],
    ) -> Any:
        """Wait for a task; return a list with its outcome's reference, and the try, or an error.

        Args:
            reader: The reader that asks.
            key: The key of the task.
            tries: Number of the try whose outcome was lost; 0 if none was.
            task: The handler and payload of the task.
            gone: The keys of outcomes that the reader has taken, and of those that it doesn't need.
        """
        opening = self._openings.get(reader)
        if opening is None:
            return PipelineError(
                "ray: this rank was taken for lost, or another process has its place"
            )
        opening.let_go(reader, *gone)
        found = opening.ask(reader, key, tries, *task)
        opening.go_on()
        return await asyncio.shield(found.made)

    def beat(self, process: str) -> None:
        """Note that a process is alive."""
        self._heard[process] = monotonic()

    async def leave(self, reader: str) -> None:
        """Remove a reader."""
        self._forget(reader)

    def _forget(self, reader: str | None) -> None:
        opening = self._openings.pop(reader or "", None)
        if reader is None or opening is None:
            return
        opening.leave(reader)
        if not opening.begun.done():
            if not opening.members:
                self._gathering = {k: v for k, v in self._gathering.items() if v is not opening}
        else:
            opening.go_on()

    def _silence(self, member: Member) -> float:
        return monotonic() - self._heard[member.process]

    def _rivals(self, member: Member) -> list[Member]:
        """Return the members of other processes that have the same rank."""
        found = [opening.members[reader] for reader, opening in self._openings.items()]
        return [
            each for each in found if each.rank == member.rank and each.process != member.process
        ]

    async def _has_rival(self, member: Member) -> bool:
        """Return whether a live process has this rank already; forget processes that are silent."""
        begun = monotonic()
        while rivals := self._rivals(member):
            if any(self._heard[each.process] > begun for each in rivals):
                return True
            for each in rivals:
                if self._silence(each) > _SILENT:
                    self._forget(each.reader)
            await asyncio.sleep(BEAT / 2)
        return False

    def _where(self, member: Member) -> str:
        rival = self._rivals(member)[0]
        return f"{rival.process} reads part {rival.rank} under this name"

    def _tell_difference(self) -> None:
        """If every rank waits in one gathering or another, report how the gatherings differ."""
        waiting = list(self._gathering.values())
        ranks = [rank for each in waiting for rank in each.ranks]
        sizes = [each.size for opening in waiting for each in opening.members.values()]
        if len(waiting) < 2 or len({*ranks}) < len(ranks) or len(ranks) < min(sizes):
            return
        one, other = waiting[:2]
        error = PipelineError(
            f"ray: {differing(one.told, other.told, one.ranks[0], other.ranks[0])}"
        )
        self._refuse(waiting, error)

    def _refuse(self, openings: Iterable[_Opening], error: PipelineError) -> None:
        for opening in openings:
            for reader in opening.members:
                del self._openings[reader]
            opening.begun.set_result(error)
        self._gathering = {k: v for k, v in self._gathering.items() if not v.begun.done()}

    async def _look_after(self, patience: float) -> None:
        """Report lost ranks to those that wait for them, until all have left or are lost."""
        last = monotonic()  # when there was a rank
        while monotonic() - last < _IDLE:
            await asyncio.sleep(BEAT)
            now = monotonic()
            if self._openings and any(now - each < patience for each in self._heard.values()):
                last = now
            for opening in {id(each): each for each in self._openings.values()}.values():
                lost = [
                    each
                    for each in map(opening.members.__getitem__, opening.slowest())
                    if self._silence(each) > patience
                ]
                if lost and opening.waiting:
                    text = f"ray: rank {lost[0].rank} is lost: nothing came for {patience:g} s"
                    opening.fail(RankMissing(text, [each.rank for each in lost]))
                    for each in lost:
                        self._forget(each.reader)
        self._ray.kill(self._ray.get_runtime_context().current_actor)
