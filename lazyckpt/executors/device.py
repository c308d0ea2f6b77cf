"""Items on their way to a device: `to_device`, around any other executor."""

from __future__ import annotations

import copy
from collections import UserDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Unfit, checked
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.crew import Gate
from lazyckpt.executors.executor import Executor, Session
from lazyckpt.executors.parts import known, snapshot
from lazyckpt.failures.notes import Failure
from lazyckpt.failures.skip_log import Skipped, Tally
from lazyckpt.failures.skipping import tally_of

if TYPE_CHECKING:
    import torch

Landing = Callable[[], Any]


def to_device(executor: Executor, device: torch.device | str | int) -> Executor:
    """Items are made by another executor, and their arrays and tensors moved to a device.

    Tensors and NumPy arrays of numbers become tensors there, also within dicts,
    lists, tuples and named tuples; all else stays as it is. Items, order and
    states are otherwise those of the executor.

    - `executor`: any, `inline()` too
    - `device`: as torch names it: "cuda", "cuda:1", "cpu", a `torch.device`

    To a CUDA device an item is copied from pinned memory, on a stream of its own,
    and one item ahead: while the consumer computes with one, the next is on its
    way. Its tensors are ready for the stream that is current where the item is
    asked for. On the CPU nothing is copied but arrays that can't be written to.

    `ArgumentError` where torch is missing, or has no such device.

    Memory: two items on the device, and pinned memory for as much.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source([[1.0, 2.0], [3.0, 4.0]]) | lz.batch(2, collate=lz.stack)
    >>> to_gpu = lz.to_device(lz.threads(2), "cuda")  # doctest: +SKIP
    """
    inner = checked("to_device", "executor", executor, _executor)
    name = checked("to_device", "device", device, _device)
    return ToDevice(to_device, {"executor": inner, "device": name})


def _executor(value: Any) -> Executor:
    if not isinstance(value, Executor):
        raise Unfit("an executor, as inline() or threads(2)")
    return value


def _device(value: Any) -> str:
    try:
        torch = import_module("torch")
    except ImportError:
        raise ArgumentError("to_device: the package torch is not installed") from None
    try:
        return str(torch.device(value))
    except (RuntimeError, TypeError) as error:
        raise Unfit(f"a device as torch names it ({str(error).splitlines()[0]})") from None


class ToDevice(Executor):
    __slots__ = ()

    def open(self, chain: Chain) -> Session:
        inner = self.arguments["executor"].open(chain)
        return _Session(chain.machine, inner, self.way(), tally_of(chain))

    def way(self) -> Way:
        device = self.arguments["device"]
        return CudaWay(device, repr(self)) if _is_cuda(device) else Way(device, repr(self))

    def explain(self, chain: Chain) -> list[tuple[str, str]]:
        device = self.arguments["device"]
        how = "on a stream of its own, one item ahead" if _is_cuda(device) else "as it is delivered"
        return [*self.arguments["executor"].explain(chain), (f"copy to {device!r}", how)]


def _is_cuda(device: str) -> bool:
    return device.partition(":")[0] == "cuda"


class _Session(Session):
    """A session around that of another executor; around the pipeline itself where that has none."""

    def __init__(
        self, machine: Machine[Any], inner: Session | None, way: Way, tally: Tally | None
    ) -> None:
        gate, fill = (Gate(is_gated=False), None) if inner is None else (inner.gate, inner.fill)
        items = machine if inner is None else inner.machine
        self._holds = inner is None
        if inner is None and tally is not None:
            tally.is_here = True
        tally = tally or Tally()
        super().__init__(machine, lambda start: Carried(items, start, way, gate, fill, tally), gate)

    def stop(self) -> None:
        super().stop()
        if self._holds and isinstance(self._walk, Carried):
            self._walk.let_go()


class Carried:
    """A walk whose items have been sent off before they are asked for.

    - `machine`: gives the items
    - `fill`: has them made ahead
    """

    def __init__(
        self,
        machine: Machine[Any],
        position: Position,
        way: Way,
        gate: Gate,
        fill: Callable[[], None] | None,
        tally: Tally,
    ) -> None:
        self._machine, self._way, self._gate, self._fill = machine, way, gate, fill
        self._tally = tally
        self._reached = position  # after the last item delivered
        self._sent = position  # after the last one sent off
        self._under_way: deque[tuple[Landing, Position, Skipped]] = deque()
        self._flow: Flow[Any] | None = None
        self._items: Iterator[Any] = iter(())

    def flow(self) -> Flow[Any]:
        return Flow(self._walk(), self.snapshot)

    def snapshot(self) -> Position:
        return known(self._reached)

    def fill(self) -> None:
        if self._fill is not None:
            self._fill()

    def let_go(self) -> None:
        """Close what the items come from; it's opened again where it was left."""
        self._flow, self._items = None, iter(())

    def _walk(self) -> Iterator[Any]:
        is_over, failure = False, None
        while True:
            most = 2 if self._way.is_ahead and self._gate.is_open else 1
            while not is_over and len(self._under_way) < most:
                try:
                    is_over = not self._send()
                except Exception as error:  # those before it come first
                    is_over, failure = True, error
            if self._under_way:
                landing, reached, skipped = self._under_way.popleft()
                item = landing()
                # Between these and where it is delivered nothing can interrupt.
                self._reached, self._tally.told_of = reached, skipped
                yield item
                del item
            elif failure is not None:
                raise failure
            else:
                self._reached, self._tally.told_of = self._sent, None
                return

    def _send(self) -> bool:
        """Send off the next item, if there is one."""
        if self._flow is None:
            self._flow = self._machine.flow(known(self._sent))
            self._items = iter(self._flow)
        for item in self._items:
            landing = self._way.send(item)
            self._sent = snapshot(self._flow)
            self._under_way.append((landing, self._sent, self._tally.met()))
            return True
        self._sent = snapshot(self._flow)
        return False


class Way:
    """A device, and how to get there.

    - `is_ahead`: whether it's worth sending an item before it is asked for
    """

    is_ahead = False

    def __init__(self, device: str, shown: str) -> None:
        self._torch: Any = import_module("torch")
        self._device = self._torch.device(device)
        self._shown = shown

    def send(self, item: Any) -> Landing:
        """Send an item off; the result gives it, to be used in the consumer's thread."""
        try:
            return self._send(item)
        except Exception as error:
            raise Failure(error, self._shown) from error

    def _send(self, item: Any) -> Landing:
        moved = spread(lambda tensor: tensor.to(self._device), item, self._torch)
        return lambda: moved


class CudaWay(Way):
    """Beside the consumer's stream, which waits for what it gets, and for no more."""

    is_ahead = True

    def __init__(self, device: str, shown: str) -> None:
        super().__init__(device, shown)
        cuda = self._torch.cuda
        if not cuda.is_available():
            raise ArgumentError(f"{shown}: torch finds no CUDA device")
        if self._device.index is None:
            self._device = self._torch.device("cuda", cuda.current_device())
        self._cuda = cuda
        self._stream = cuda.Stream(self._device)

    def _send(self, item: Any) -> Landing:
        moved: list[Any] = []

        def move(tensor: Any) -> Any:
            if tensor.device.type != "cpu" or tensor.layout is not self._torch.strided:
                return tensor.to(self._device)
            with self._cuda.stream(self._stream):
                moved.append(tensor.pin_memory().to(self._device, non_blocking=True))
            return moved[-1]

        sent = spread(move, item, self._torch)
        copied = self._stream.record_event()

        def land() -> Any:
            stream = self._cuda.current_stream(self._device)
            stream.wait_event(copied)
            for tensor in moved:
                tensor.record_stream(stream)  # else its memory is free for the next copy too soon
            return sent

        return land


def spread(move: Callable[[Any], Any], item: Any, torch: Any) -> Any:
    """An item with its tensors and arrays moved; containers are made anew."""
    if isinstance(item, (dict, UserDict)):
        moved = copy.copy(item)
        for key, value in item.items():
            moved[key] = spread(move, value, torch)
        return moved
    if isinstance(item, tuple) and hasattr(item, "_make"):
        return item._make(spread(move, value, torch) for value in item)
    if type(item) in (list, tuple):
        return type(item)(spread(move, value, torch) for value in item)
    if type(item) in (np.ndarray, np.memmap) and item.dtype.kind in "biufc":
        with suppress(TypeError):  # of a type that torch lacks
            return move(torch.from_numpy(_fitting(item)))
    return move(item) if isinstance(item, torch.Tensor) else item


def _fitting(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or a copy where a tensor can't share its memory."""
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    if array.flags.writeable and not any(s < 0 or s % array.itemsize for s in array.strides):
        return array
    return array.copy()
