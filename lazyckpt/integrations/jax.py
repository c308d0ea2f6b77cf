"""Prefetching of items to JAX devices: `lz.jax`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import checked
from lazyckpt.executors.device import DeviceTransfer, ToDevice, executor_check
from lazyckpt.executors.executor import Executor, Part

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError(f'lz.jax: pip install "lazyckpt[jax]" ({error})') from None

__all__ = ["device_put"]


def device_put(
    executor: Executor, device: jax.Device | jax.sharding.Sharding | None = None
) -> Executor:
    """Compute items by an executor, and put them on a JAX device, one item ahead.

    Each array of numbers in a pytree becomes a `jax.Array`; all other leaves are left as they are.
    Items, order and states are otherwise those of the executor. The next item is transferred while
    the consumer computes with the current one. The state is that after the current item;
    `flax.jax_utils.prefetch_to_device` can't provide it. On the CPU, arrays may share memory with
    the items.

    Args:
        executor: Any executor, including `lz.inline()`.
        device: Device or sharding, as in `jax.device_put`; None for the default device.

    Memory:
        Two items on the device.

    Example:
        sharding = NamedSharding(mesh, PartitionSpec("data"))
        run = lz.run(pipeline, saved, executor=lz.jax.device_put(lz.threads(4), sharding))
    """
    inner = checked("device_put", "executor", executor, executor_check)
    return _DevicePut(device_put, {"executor": inner, "device": device})


class _DevicePut(ToDevice):
    __slots__ = ()

    def transfer(self) -> DeviceTransfer:
        return _JaxTransfer(self.arguments["device"], repr(self))

    def explain(self, chain: Chain) -> list[Part]:
        device = self.arguments["device"]
        name = "the default device" if device is None else str(device)
        return [
            *self.arguments["executor"].explain(chain),
            ((f"copy to {name}",), "prefetch 1", ()),
        ]


class _JaxTransfer(DeviceTransfer):
    is_ahead = True

    def __init__(self, device: Any, shown: str) -> None:
        self._device, self._shown = device, shown

    def _send(self, item: Any) -> Any:
        moved = jax.tree.map(self._put, item)  # returns before the copies are done
        return lambda: moved

    def _put(self, leaf: Any) -> Any:
        if not isinstance(leaf, (np.ndarray, jax.Array)):
            return leaf
        is_numeric = leaf.dtype == bool or jnp.issubdtype(leaf.dtype, jnp.number)
        return jax.device_put(leaf, self._device) if is_numeric else leaf
