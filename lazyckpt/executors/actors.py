"""A crew of Ray actors."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from typing import Any

from lazyckpt.errors import ArgumentError
from lazyckpt.executors.futures import Futures, Job
from lazyckpt.executors.parcels import Parcel, Report, Sealed, packed, whereabouts
from lazyckpt.executors.parts import Outcome, Part
from lazyckpt.failures.notes import traced


class Worker:
    """What an actor is."""

    def __init__(self, packed: bytes) -> None:
        self._broken: Outcome | None = None
        self._parts: list[Part] = []
        try:
            self._parts = pickle.loads(packed)
        except BaseException as error:
            self._broken = Outcome([], traced(error, (), whereabouts()))

    def work(self, part: int, payload: Parcel | Sealed) -> Report:
        try:
            given = payload.open()
        except BaseException as error:
            return Report(Outcome([], traced(error, (), whereabouts())))
        return Report(self._broken or self._parts[part](given))


class Actors(Futures):
    """Each task goes to the actor that has the fewest, and is done after those.

    - `options`: of the actors
    """

    def __init__(
        self,
        parts: list[Part],
        workers: int,
        buffer_size: int,
        timeout: float | None,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(None, parts, buffer_size, timeout)
        self.workers, self.buffer_size = workers, buffer_size
        self._ray: Any = import_module("ray")
        try:
            self._hired = self._ray.remote(Worker).options(**options)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"ray: {error}") from None
        self._parts_ref: Any = None
        self._actors: list[Any] = []

    def ready(self) -> None:
        super().ready()
        if self._actors:
            return
        ray = self._ray
        if not ray.is_initialized():
            ray.init(include_dashboard=False)
            self._parts_ref = None  # of an earlier Ray
        if self._parts_ref is None:
            self._parts_ref = ray.put(packed(self.parts, has_main=False))
        for _ in range(self.workers):
            self._actors.append(self._hired.remote(self._parts_ref))

    def send(self, job: Job) -> Future[Any]:
        has = [t.handle.worker for t in self.tickets if not t.handle.future.done()]
        job.worker = min(self._actors, key=has.count)
        future: Future[Any] = job.worker.work.remote(job.part, job.payload).future()
        return future

    def stop(self) -> None:
        actors, self._actors = self._actors, []
        super().stop()
        if self._ray.is_initialized():
            for actor in actors:
                with suppress(Exception):  # it's gone already
                    self._ray.kill(actor)

    def __str__(self) -> str:
        return "a Ray actor"
