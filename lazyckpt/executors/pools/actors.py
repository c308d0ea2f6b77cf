"""A pool of Ray actors."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from typing import Any

from lazyckpt.errors import ArgumentError
from lazyckpt.executors.ipc.serialization import (
    Message,
    SerializedMessage,
    serialize_handlers,
)
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.executors.pools.futures import FuturesPool, Job
from lazyckpt.executors.pools.seeding import seed_generators, seed_torch
from lazyckpt.failures.notes import as_failure


class ActorWorker:
    """An actor: it keeps the handlers and does tasks."""

    def __init__(self, serialized: bytes) -> None:
        self._start_failure: Outcome | None = None
        self._handlers: list[Handler] = []
        try:
            self._handlers = pickle.loads(serialized)
            seed_generators()
        except BaseException as error:
            self._start_failure = Outcome([], as_failure(error, ()))

    def work(self, handler: int, payload: Message | SerializedMessage) -> Message:
        try:
            received = payload.open()
            seed_torch()
        except BaseException as error:
            return Message(Outcome([], as_failure(error, ())))
        return Message(self._start_failure or self._handlers[handler](received))


class ActorPool(FuturesPool):
    """Ray actors. Each task goes to the actor with the fewest tasks, which does them in order."""

    def __init__(
        self,
        handlers: list[Handler],
        workers: int,
        buffer_size: int,
        timeout: float | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(None, handlers, buffer_size, timeout)
        self.workers, self.buffer_size = workers, buffer_size
        self._ray: Any = import_module("ray")
        try:
            self._actor_class = self._ray.remote(ActorWorker).options(**options)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"ray: {error}") from None
        self._handlers_ref: Any = None
        self._actors: list[Any] = []
        self._starting = threading.Lock()  # several threads may drive this pool

    def _start(self) -> None:
        with self._starting:
            if not self._actors:
                self._start_actors()

    def _start_actors(self) -> None:
        ray, generation = self._ray, self.generation
        if not ray.is_initialized():
            ray.init(include_dashboard=False)
            self._handlers_ref = None  # it belonged to an earlier Ray instance
        if self._handlers_ref is None:
            self._handlers_ref = ray.put(serialize_handlers(self.handlers))
        for _ in range(self.workers):
            self._actors.append(self._actor_class.remote(self._handlers_ref))
        if self.generation != generation:  # a different thread has stopped the pool meanwhile
            self._end()

    def send(self, job: Job) -> Future[Any]:
        has = [pending.handle.worker for pending in self.pending_tasks if not pending.is_done]
        job.worker = min(self._actors, key=has.count)
        future: Future[Any] = job.worker.work.remote(job.handler, job.payload).future()
        return future

    def _end(self, *, waits: bool = True) -> None:
        actors, self._actors = self._actors, []
        super()._end()
        if self._ray.is_initialized():
            for actor in actors:
                with suppress(Exception):  # it may be gone already
                    self._ray.kill(actor)

    def __str__(self) -> str:
        return "a Ray actor"
