"""An executor that moves the items of any executor to a device: `to_device`."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Unfit, checked
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor, Part
from lazyckpt.executors.plan.positions import raise_or_position, try_snapshot
from lazyckpt.executors.pools.pool import PrefetchGate
from lazyckpt.executors.session import Session
from lazyckpt.failures.notes import Failure
from lazyckpt.failures.skip_log import SkipLog, Skipped
from lazyckpt.failures.skipping import skip_log_of

if TYPE_CHECKING:
    import torch

Arrival = Callable[[], Any]


def to_device(executor: Executor, device: torch.device | str | int) -> Executor:
    """Compute items with `executor`, and move their arrays and tensors to a device.

    Tensors and numeric NumPy arrays become tensors on the device, also inside dicts, lists,
    tuples and named tuples. Everything else is unchanged, and so are the order of the items
    and the states.

    For a CUDA device, each item is copied from pinned memory on a separate stream, one item
    ahead: the next item is copied while the consumer computes with the current one. The
    tensors are ready for the stream that is current when the consumer asks for the item. For
    the CPU, tensors share the memory of arrays; only arrays that can't be shared are copied,
    such as read-only ones.

    Memory: two items on the device, and the same amount of pinned memory.

    Args:
        executor: Any executor, including `inline()`.
        device: A device as torch names it: "cuda", "cuda:1", "cpu", or a `torch.device`.

    Returns:
        An executor.

    Raises:
        ArgumentError: If torch is not installed or has no such device.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source([[1.0, 2.0], [3.0, 4.0]]) | lz.batch(2, collate=lz.stack)
    >>> to_gpu = lz.to_device(lz.threads(2), "cuda")  # doctest: +SKIP
    """
    inner = checked("to_device", "executor", executor, executor_check)
    name = checked("to_device", "device", device, _device)
    return ToDevice(to_device, {"executor": inner, "device": name})


def executor_check(value: Any) -> Executor:
    """Return an executor, for `checked`."""
    if not isinstance(value, Executor):
        raise Unfit("an executor, such as inline() or threads(2)")
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
        inner: Session | None = self.arguments["executor"].open(chain)
        skip_log = skip_log_of(chain) or SkipLog()
        if inner is None:
            skip_log.is_direct = True
        gate = PrefetchGate(is_gated=False) if inner is None else inner.gate
        source = chain.machine if inner is None else inner.machine
        made = partial(DevicePrefetcher, source, inner, self.transfer(), gate, skip_log)
        return Session(chain.machine, made, gate)

    def transfer(self) -> DeviceTransfer:
        device = self.arguments["device"]
        return (CudaTransfer if _is_cuda(device) else DeviceTransfer)(device, repr(self))

    def explain(self, chain: Chain) -> list[Part]:
        device = self.arguments["device"]
        how = "on a separate stream; prefetch 1" if _is_cuda(device) else "on delivery; no prefetch"
        return [*self.arguments["executor"].explain(chain), ((f"copy to {device!r}",), how, ())]

    def memory(self, chain: Chain) -> list[str]:
        found: list[str] = self.arguments["executor"].memory(chain)
        return found


def _is_cuda(device: str) -> bool:
    return device.partition(":")[0] == "cuda"


class DevicePrefetcher:
    """Sends items to a device before the consumer asks for them.

    Args:
        machine: Machine that yields the items.
        inner: Session whose workers compute them; None if there is none.
        transfer: Moves items to the device.
        gate: Whether items may be sent ahead.
        skip_log: Log of the records skipped before the items.
        position: Position to start from.
    """

    def __init__(
        self,
        machine: Machine[Any],
        inner: Session | None,
        transfer: DeviceTransfer,
        gate: PrefetchGate,
        skip_log: SkipLog,
        position: Position,
    ) -> None:
        self._machine, self._inner, self._transfer, self._gate = machine, inner, transfer, gate
        self._skip_log = skip_log
        self._reached = position  # after the last item that was delivered
        self._sent = position  # after the last item that was sent
        self._under_way: deque[tuple[Arrival, Position, Skipped]] = deque()
        self._flow: Flow[Any] | None = None
        self._items: Iterator[Any] = iter(())

    def flow(self) -> Flow[Any]:
        return Flow(self._deliver(), self.snapshot)

    def snapshot(self) -> Position:
        return raise_or_position(self._reached)

    def fill(self) -> None:
        if self._inner is not None:
            self._inner.fill()

    @property
    def ready(self) -> int:
        return len(self._under_way) + (0 if self._inner is None else self._inner.ready)

    def suspend(self) -> None:
        """Close the flow of items; the next item reopens it at the same position."""
        if self._inner is None:  # with workers, the flow stays open and keeps their items
            self._flow, self._items = None, iter(())

    def _deliver(self) -> Iterator[Any]:
        is_over, failure = False, None
        while True:
            most = 2 if self._transfer.is_ahead and self._gate.is_open else 1
            while not is_over and len(self._under_way) < most:
                try:
                    is_over = not self._send()
                except Exception as error:  # raised after the items before it
                    is_over, failure = True, error
            if self._under_way:
                arrival, reached, skipped = self._under_way.popleft()
                item = arrival()
                # No interrupt can come between these assignments and the `yield`.
                self._reached, self._skip_log.delivered = reached, skipped
                yield item
                del item
            elif failure is not None:
                raise failure
            else:
                self._reached, self._skip_log.delivered = self._sent, None
                return

    def _send(self) -> bool:
        """Send the next item; return whether there was one."""
        flow = self._flow  # a local name, as a signal handler may close it
        if flow is None:
            self._flow = flow = self._machine.flow(raise_or_position(self._sent))
            self._items = iter(flow)
        for item in self._items:
            arrival = self._transfer.send(item)
            self._sent = try_snapshot(flow)
            self._under_way.append((arrival, self._sent, self._skip_log.before_yielded()))
            return True
        self._sent = try_snapshot(flow)
        return False


class DeviceTransfer:
    """Moves items to a device.

    Attributes:
        is_ahead: If True, send an item before the consumer asks for it.
    """

    is_ahead = False

    def __init__(self, device: str, shown: str) -> None:
        self._torch: Any = import_module("torch")
        self._device = self._torch.device(device)
        self._shown = shown

    def send(self, item: Any) -> Arrival:
        """Send an item; the consumer's thread calls the result to wait for its arrival."""
        try:
            return self._send(item)
        except Exception as error:
            raise Failure(error, self._shown) from error

    def _send(self, item: Any) -> Arrival:
        moved = move_tensors(lambda tensor: tensor.to(self._device), item, self._torch)
        return lambda: moved


class CudaTransfer(DeviceTransfer):
    """Copies on a separate stream; the consumer's stream waits only for the items it gets."""

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

    def _send(self, item: Any) -> Arrival:
        moved: list[Any] = []

        def move(tensor: Any) -> Any:
            if tensor.device.type != "cpu" or tensor.layout is not self._torch.strided:
                return tensor.to(self._device)
            with self._cuda.stream(self._stream):
                moved.append(tensor.pin_memory().to(self._device, non_blocking=True))
            return moved[-1]

        sent = move_tensors(move, item, self._torch)
        copied = self._stream.record_event()

        def arrive() -> Any:
            stream = self._cuda.current_stream(self._device)
            stream.wait_event(copied)
            for tensor in moved:
                tensor.record_stream(stream)  # otherwise the next copy reuses its memory too soon
            return sent

        return arrive


def move_tensors(move: Callable[[Any], Any], item: Any, torch: Any) -> Any:
    """Return an item with its tensors and arrays moved, in new containers."""
    if type(item) in (np.ndarray, np.memmap) and item.dtype.kind in "biufc":
        with suppress(TypeError):  # torch lacks this dtype
            return move(torch.from_numpy(_shareable(item)))
    if isinstance(item, torch.Tensor):
        return move(item)
    return map_values(lambda value: move_tensors(move, value, torch), item)


def map_values(fn: Callable[[Any], Any], item: Any) -> Any:
    """Apply `fn` to each value of a mapping, list, tuple or named tuple; return a new container.

    Any other object is returned unchanged.
    """
    if isinstance(item, MutableMapping):
        moved = copy.copy(item)
        for key, value in item.items():
            moved[key] = fn(value)
        return moved
    if isinstance(item, tuple) and hasattr(item, "_make"):
        return item._make(map(fn, item))
    return type(item)(map(fn, item)) if type(item) in (list, tuple) else item


def _shareable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy if a tensor can't share its memory."""
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    if array.flags.writeable and not any(s < 0 or s % array.itemsize for s in array.strides):
        return array
    return array.copy()
