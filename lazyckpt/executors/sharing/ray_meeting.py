"""Meetings of ranks on a Ray cluster: an actor with a known name tells them where to meet."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from time import monotonic, sleep
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from lazyckpt.errors import PipelineError, RankMissing
from lazyckpt.executors.sharing.door import close_with
from lazyckpt.executors.sharing.link import Nodes, Reach, Role, role_of
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.meeting_place import MeetingPlace
from lazyckpt.executors.sharing.mesh import Mesh

_NAMESPACE = "lazyckpt"
_SECRET = 32  # bytes
_TICK = 0.25  # seconds between two looks for the address
_ANSWER = 5.0  # seconds for an address to answer

_Address: TypeAlias = tuple[str, int, bytes]
"""The host and the port where ranks meet, and a secret."""


class _Teller:
    """An actor that tells where the ranks of a training run meet."""

    def __init__(self, address: _Address) -> None:
        self._address = address

    def tell(self) -> _Address:
        return self._address


class _Place:
    """A meeting place in this process, which has rank 0, and the actor that tells its address.

    Both end with the last run that needs the place, and with the process.
    """

    def __init__(self, name: str, timeout: float, deadline: float) -> None:
        ray: Any = import_module("ray")
        scheduling = import_module("ray.util.scheduling_strategies")
        node = ray.get_runtime_context().get_node_id()
        (host,) = [each["NodeManagerAddress"] for each in ray.nodes() if each["NodeID"] == node]
        secret = os.urandom(_SECRET)
        place = MeetingPlace(host, secret, timeout)
        close_with(self, place.close)
        self.address: _Address = (host, place.port, secret)
        here = scheduling.NodeAffinitySchedulingStrategy(node, soft=False)
        actor = ray.remote(_Teller).options(
            name=name, namespace=_NAMESPACE, num_cpus=0, scheduling_strategy=here
        )
        while True:
            try:
                self._teller = actor.remote(self.address)
                return
            except ValueError as error:  # the name is taken
                there = _told_by(name)
                if (there is not None and _answers(there)) or monotonic() >= deadline:
                    raise PipelineError(
                        f"ray: another process reads as rank 0 under shared={name!r}: each "
                        "training needs a name of its own, and one process for each index of shard"
                    ) from error
            sleep(_TICK)  # of a run that has just ended


_places: WeakValueDictionary[str, _Place] = WeakValueDictionary()  # of this process, by name


def _teller(name: str) -> Any:
    """Return the actor with a name; None if there is none."""
    with suppress(ValueError):
        return import_module("ray").get_actor(name, _NAMESPACE)
    return None


def _told_by(name: str) -> _Address | None:
    """Return the address under a name; None if no actor tells it."""
    ray: Any = import_module("ray")
    teller = _teller(name)
    with suppress(ray.exceptions.RayError):  # it ends, or is busy
        found: _Address | None = teller and ray.get(teller.tell.remote(), timeout=_ANSWER)
        return found
    return None


def _answers(address: _Address) -> bool:
    with suppress(OSError), socket.create_connection(address[:2], _ANSWER):
        return True
    return False


class RayMeeting:
    """A meeting at an address that rank 0 publishes under the name of the training run."""

    nodes: Nodes = ()
    presence = None

    def __init__(self, name: str, rank: int, size: int, timeout: float) -> None:
        """Prepare to meet.

        Args:
            name: The name, the same on all ranks.
            rank: The number of this rank.
            size: The number of ranks.
            timeout: Seconds to wait for all ranks.
        """
        self.rank = rank
        self._name, self._size, self._timeout = name, size, timeout
        self._place: _Place | None = None

    @property
    def role(self) -> Role:
        return role_of(self.rank, self._size, self.nodes)

    def join(self, told: Mapping[str, Any], reach: Reach, look: Callable[[], None]) -> Mesh:
        deadline = monotonic() + self._timeout
        while True:
            look()
            try:
                host, port, secret = self._address(deadline, look)
                place = SocketMeeting(host, port, secret, self.rank, self._size, self._timeout)
                return place.join(told, reach, look)
            except RankMissing as error:
                if self.rank == 0 or error.ranks != (0,) or monotonic() >= deadline:
                    raise
            sleep(_TICK)  # the address may be of a run that has just ended

    def leave(self) -> None:
        self._place = None

    def _address(self, deadline: float, look: Callable[[], None]) -> _Address:
        if self.rank == 0:
            place = self._place or _places.get(self._name)
            if place is None or _teller(self._name) is None:
                place = _Place(self._name, self._timeout, deadline)
            self._place = _places[self._name] = place
            return place.address
        while (found := _told_by(self._name)) is None:
            look()
            if monotonic() >= deadline:
                raise RankMissing(
                    f"ray: within {self._timeout:g} s rank 0 did not come under "
                    f"shared={self._name!r}",
                    [0],
                )
            sleep(_TICK)
        return found
