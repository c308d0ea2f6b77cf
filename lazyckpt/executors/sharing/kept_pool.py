"""Ray workers for all ranks of a training run, which get the same outcomes from a keeper."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from importlib import import_module
from queue import Empty
from time import monotonic, sleep
from typing import Any, TypeVar
from uuid import uuid4

from lazyckpt.core.call import Chain
from lazyckpt.core.machine import Machine
from lazyckpt.errors import ArgumentError, PipelineError, WorkerDied, WorkerTimeout
from lazyckpt.executors.ipc.serialization import serialize_handlers, this_process
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler, Outcome, Reader
from lazyckpt.executors.pools.futures import FuturesPool, Job
from lazyckpt.executors.pools.pool import PendingTask, get_within
from lazyckpt.executors.sharing.agreement import common_key, opening_of
from lazyckpt.executors.sharing.keeper import BEAT, Keeper, Making, Member, make
from lazyckpt.executors.sharing.link import Reach

T = TypeVar("T")
_TICK = 0.25  # seconds between two checks
_PATIENCE = 60.0  # seconds to wait for other ranks, and for the keeper, if there is no timeout
_LINGER = 5.0  # seconds for the message that this rank leaves


class KeptPool(FuturesPool):
    """Tasks for Ray's workers: the common tasks through the keeper, and this rank's own.

    The keeper is an actor whose name all ranks know. The first rank that reaches a common task
    requests it, and the keeper starts it. All ranks get a reference to the same outcome, which the
    keeper drops once they have taken it. Each flow through the pipeline is an opening, which all
    ranks begin at the same position.
    """

    def __init__(
        self,
        handlers: list[Handler],
        workers: int,
        name: str,
        buffer_size: int,
        chunk_size: int,
        timeout: float | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(None, handlers, buffer_size, timeout)
        self._name, self._options = name, options
        ranks = [each.machine.share.ranks for each in handlers if isinstance(each, Reader)]
        self.workers = max(1, workers // max([1, *ranks]))  # those of each, if it makes its own
        self.buffer_size, self.chunk_size = buffer_size, chunk_size
        self._patience = timeout or _PATIENCE
        self._ray: Any = import_module("ray")
        try:
            options = {"max_retries": 0, **options, "num_returns": 2}
            self._own = self._ray.remote(make).options(**options)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"ray: {error}") from None
        self._handlers_ref: Any = None
        self._keeper: Any = None
        self._reader: str | None = None
        self._heard = 0.0  # when the keeper last answered
        self._gone: tuple[list[bytes], list[bytes]] = ([], [])

    # Openings.

    def opening(self, chain: Chain, machine: Machine[T]) -> Machine[T]:
        share = chain.machine.share
        place = {"num_shards": share.ranks, "workers": self.workers}
        return opening_of(self, chain, machine, partial(self._open, share.rank, share.ranks), place)

    def _open(self, rank: int, size: int, told: Mapping[str, Any]) -> None:
        self._start()
        leaves, self._reader = self._reader, None
        generation, reader = self.generation, uuid4().hex
        process = f"{this_process()} ({self._ray.get_runtime_context().get_worker_id()[:8]})"
        member = Member(reader, process, rank, size, Reach(self.workers, self.buffer_size))
        serialized = self._serialized or serialize_handlers(self.handlers)
        self._serialized = serialized
        making = Making(
            serialized if rank == 0 else b"", self.workers, self._timeout, self._patience,
            self._options,
        )  # fmt: skip
        deadline = monotonic() + self._patience + _PATIENCE  # the keeper has its own
        self.is_awaited = True
        try:
            while True:
                keeper = self._find_keeper()
                joined = keeper.join.remote(member, told, making, leaves)
                while not self._ray.wait([joined], timeout=_TICK)[0] and monotonic() < deadline:
                    if self.generation != generation:
                        keeper.leave.remote(reader)
                        raise TaskLost
                try:
                    found = self._ray.get(joined, timeout=_TICK)
                    break
                except (self._ray.exceptions.RayError, TimeoutError) as lost:
                    # The keeper of an earlier run ends with that; its name is free a moment later.
                    if monotonic() >= deadline:
                        raise self._died(lost) from lost
        finally:
            self.is_awaited = False
        if isinstance(found, Exception):
            raise found
        self.reach = found
        self._gone, self._heard = ([], []), monotonic()
        self._keeper, self._reader = keeper, reader
        thread = threading.Thread(
            target=self._beat, args=(keeper, reader, process), name="lazyckpt-beat", daemon=True
        )
        thread.start()

    def _find_keeper(self) -> Any:
        """Find the keeper by its name, or start a detached one on this node."""
        scheduling = import_module("ray.util.scheduling_strategies")
        here = self._ray.get_runtime_context().get_node_id()
        options = {
            "name": self._name, "namespace": "lazyckpt", "get_if_exists": True,
            "lifetime": "detached", "num_cpus": 0, "max_concurrency": 100_000,
            "scheduling_strategy": scheduling.NodeAffinitySchedulingStrategy(here, soft=False),
        }  # fmt: skip
        return self._ray.remote(Keeper).options(**options).remote()

    def _beat(self, keeper: Any, reader: str, process: str) -> None:
        while self._reader == reader and self._ray.is_initialized():
            with suppress(Exception):  # ranks that wait for it get an error
                beat: Future[None] = keeper.beat.remote(process).future()
                beat.add_done_callback(self._hear)
            sleep(BEAT)

    def _hear(self, beat: Future[None]) -> None:
        if beat.exception() is None:
            self._heard = monotonic()

    def _died(self, error: BaseException) -> WorkerDied:
        return WorkerDied(f"the keeper of shared={self._name!r} has died or hangs: {error}")

    # Tasks.

    def send(self, job: Job) -> Future[Any]:
        payload = job.payload.open()
        key = common_key(self.handlers, job.handler, payload) if self.is_driven else None
        if key is None:
            self._serialized = self._serialized or serialize_handlers(self.handlers)
            self._handlers_ref = self._handlers_ref or self._ray.put(self._serialized)
            outcome, _ = self._own.remote(self._key, job.handler, job.payload, self._handlers_ref)
            found: Future[Any] = outcome.future()
            return found
        if self._reader is None:
            raise TaskLost
        job.key, job.worker = key, self._reader  # an opening that is over has the same keys
        future: Future[Any] = Future()
        gone, self._gone = self._gone, ([], [])
        self._ask(self._reader, job, future, 0, gone)
        return future

    def _ask(
        self,
        reader: str,
        job: Job,
        future: Future[Any],
        tries: int,
        gone: tuple[Any, Any] = ((), ()),
    ) -> None:
        """Request a task from the keeper; after a loss, with the number of the lost try."""
        task = (job.handler, job.payload)
        asked: Future[Any] = self._keeper.ask.remote(reader, job.key, tries, task, gone).future()
        asked.add_done_callback(partial(self._answered, reader, job, future))

    def _answered(self, reader: str, job: Job, future: Future[Any], answer: Future[Any]) -> None:
        """Fetch the outcome that the keeper's answer refers to. Runs in a thread of Ray's."""
        with suppress(InvalidStateError):  # as it was cancelled
            error = answer.exception()
            if error is not None:
                future.set_exception(self._died(error))
            elif isinstance(found := answer.result(), Exception):
                future.set_exception(found)
            else:
                (outcome,), tries = found
                fetched: Future[Any] = outcome.future()
                fetched.add_done_callback(partial(self._fetched, reader, job, future, tries))

    def _fetched(
        self, reader: str, job: Job, future: Future[Any], tries: int, fetched: Future[Any]
    ) -> None:
        with suppress(InvalidStateError):
            error = fetched.exception()
            if isinstance(error, self._ray.exceptions.ObjectLostError) and self._reader == reader:
                self._ask(reader, job, future, tries)
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(fetched.result())

    def _wait_for(self, pending: PendingTask) -> Any:
        if pending.handle.key is None:  # this rank's own
            return super()._wait_for(pending)
        begun = monotonic()
        while pending.generation == self.generation or not pending.came.empty():
            with suppress(Empty):
                return get_within(pending.came, _TICK)
            if monotonic() - max(begun, self._heard) > self._patience:
                found: Future[Any] = Future()
                found.set_exception(self._died(TimeoutError(f"no sign for {self._patience:g} s")))
                return found
        return None

    def _take_in(self, pending: PendingTask, found: Future[Any]) -> None:
        self._gone[0].extend(self._keys_of(pending))
        super()._take_in(pending, found)

    def drop(self, pending_tasks: Iterable[PendingTask]) -> None:
        for pending in pending_tasks:
            if pending.outcome is None:
                self._gone[1].extend(self._keys_of(pending))

    def _keys_of(self, pending: PendingTask) -> list[bytes]:
        """Return the key of a task, if it is a common task of this opening."""
        job: Job | None = pending.handle
        if job is None or job.key is None or job.worker != self._reader:
            return []
        return [job.key]

    def _failed(self, pending: PendingTask, error: BaseException) -> Outcome:
        if isinstance(error, TaskLost):
            raise error
        self.losses += isinstance(error, (WorkerDied, WorkerTimeout))
        return super()._failed(pending, error)

    def _break(self) -> None:
        """Do nothing: Ray has other workers."""

    # The workers.

    def _start(self) -> None:
        if not self._ray.is_initialized():
            raise PipelineError(
                "ray: this process isn't connected to the cluster of the other ranks; call "
                "ray.init(address=...) first"
            )

    def _end(self, *, waits: bool = True) -> None:
        reader, self._reader, self._handlers_ref = self._reader, None, None
        super()._end()
        if reader is not None and self._ray.is_initialized():
            with suppress(Exception):  # it has ended already
                self._ray.wait([self._keeper.leave.remote(reader)], timeout=_LINGER)

    def forget(self) -> None:
        super().forget()
        self._reader = None

    def __str__(self) -> str:
        return "a Ray worker"
