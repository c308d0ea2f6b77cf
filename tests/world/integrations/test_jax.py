"""JAX, Flax, Optax, Orbax and grain: in other processes, as one that runs JAX can't be forked.

One that has only imported it can be.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grain
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

import lazyckpt as lz
from tests.world.integrations.trainer_cases import (
    SAVES,
    STEPS,
    epoch_of,
    kill_and_resume,
    noted,
    numbers_of,
    pipeline_of,
    runs,
    trained,
)


class Run:
    """A run fed to JAX, whose state Orbax keeps as JSON."""

    restore: Any = ocp.args.JsonRestore()

    def __init__(self) -> None:
        self.items = lz.run(pipeline_of(), executor=lz.jax.device_put(lz.threads(1)))

    def save(self) -> Any:
        return ocp.args.JsonSave(self.items.state_dict())

    def restored(self, found: Any) -> None:
        self.items.load_state_dict(found)


class Grain:
    """An iterator of grain's, which its own handler for Orbax saves and restores."""

    def __init__(self) -> None:
        self.items = iter(lz.grain.dataset(pipeline_of(), lz.threads(1)).map(dict))
        self.restore = grain.checkpoint.CheckpointRestore(self.items)

    def save(self) -> Any:
        return grain.checkpoint.CheckpointSave(self.items)

    def restored(self, found: Any) -> None:
        """It is, in place."""


FEEDS = {"run": Run, "grain": Grain}


def train(folder: Path, kind: str, rank: int) -> None:
    """A Flax model, by Optax; Orbax keeps both, and the data's state."""
    data: Run | Grain = FEEDS[kind]()
    model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.update(model, nnx.grad(lambda model: ((model(x) - y) ** 2).mean())(model))

    with ocp.CheckpointManager(folder / "saves") as manager:
        if (last := manager.latest_step()) is not None:
            wanted = ocp.args.StandardRestore(nnx.state((model, optimizer)))
            found = manager.restore(last, args=ocp.args.Composite(model=wanted, data=data.restore))
            nnx.update((model, optimizer), found.model)
            data.restored(found.data)
        for number, batch in enumerate(data.items, (last or 0) + 1):
            step(model, optimizer, batch["x"], batch["y"])
            trained(folder, number, batch)
            if number == STEPS:
                return data.items.close()
            if number % SAVES == 0:
                kept = ocp.args.StandardSave(nnx.state((model, optimizer)))
                manager.save(number, args=ocp.args.Composite(model=kept, data=data.save()))
                manager.wait_until_finished()


class Pair(NamedTuple):
    x: Any
    y: Any


def check_leaves(folder: Path) -> None:
    """Numbers go to the device, whatever they are in; all else stays."""
    text = np.array(["a"])
    half = np.ones(2, ml_dtypes.bfloat16)
    item = {"a": [np.arange(3), 7, "text"], "b": Pair(np.array([True]), None), "c": (text, half)}
    executor = lz.jax.device_put(lz.inline(), jax.devices()[0])
    found = next(lz.run(lz.source([item]), executor=executor))
    arrays = [found["a"][0], found["b"].x, found["c"][1]]
    assert all(isinstance(each, jax.Array) for each in arrays)
    assert [each.dtype for each in arrays] == [jnp.int32, jnp.bool_, jnp.bfloat16]
    assert found["a"][1:] == [7, "text"]
    assert found["b"].y is None
    assert found["c"][0] is text


def check_sharding(folder: Path) -> None:
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    executor = lz.jax.device_put(lz.threads(1), sharding)
    run = lz.run(epoch_of(), executor=executor)
    assert next(run)["x"].sharding == sharding
    run.close()
    assert lz.explain(epoch_of(), executor).layout.endswith("prefetch 1")


def check_states(folder: Path) -> None:
    """The states of the delivered items, with the next item on its way."""
    executor = lz.jax.device_put(lz.threads(2))
    with lz.run(epoch_of(), executor=executor) as run:
        states = [state for _, state in run.with_state()]
    assert states == [state for _, state in lz.run(epoch_of()).with_state()]


def check_orbax_with_grain(folder: Path) -> None:
    """Through grain's own handler, and with its stages after the pipeline."""
    pairs = lz.grain.dataset(epoch_of(), lz.threads(1)).map(lambda batch: batch["number"].tolist())
    iterator = iter(pairs)
    expected = numbers_of(pipeline_of(), 10)
    assert [next(iterator) for _ in range(4)] == expected[:4]
    with ocp.CheckpointManager(folder / "handler") as manager:
        manager.save(4, args=ocp.args.Composite(data=grain.checkpoint.CheckpointSave(iterator)))
        assert next(iterator) == expected[4]
        fresh = iter(pairs)
        restore = grain.checkpoint.CheckpointRestore(fresh)
        manager.restore(4, args=ocp.args.Composite(data=restore))
    assert list(fresh) == expected[4:]
    fresh.close()
    iterator.close()
    with pytest.raises(ValueError, match="closed"):
        next(iterator)


CHECKS: dict[str, Callable[[Path], None]] = {
    name: check for name, check in sorted(globals().items()) if name.startswith("check_")
}


def test_all_that_needs_jax_in_a_process_of_its_own(tmp_path: Path) -> None:
    runs(__file__, tmp_path)
    for kind in FEEDS:
        assert noted(tmp_path / kind) == numbers_of(pipeline_of()), kind


def test_grain_iterators_have_get_state_and_set_state() -> None:
    iterator = iter(lz.grain.dataset(epoch_of()))
    next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    rest = [batch["number"].tolist() for batch in iterator]
    assert rest == numbers_of(pipeline_of(), 10)[1:]
    iterator.set_state(state)
    assert [batch["number"].tolist() for batch in iterator] == rest
    assert lz.State.from_dict(state) == lz.state_at(epoch_of(), 1)


def test_what_is_refused() -> None:
    with pytest.raises(lz.ArgumentError, match="device_put: executor must be an executor"):
        lz.jax.device_put(4)  # type: ignore[arg-type]
    with pytest.raises(lz.ArgumentError, match="pipeline must be a Pipeline"):
        lz.grain.dataset([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["jax", "grain"])
def test_where_it_is_missing(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; import lazyckpt; lazyckpt.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f'ImportError: lz.{name}: pip install "lazyckpt[{name}]"' in done.stderr


if __name__ == "__main__":
    kill_and_resume(train, Path(sys.argv[1]), FEEDS)
    for check in CHECKS.values():
        check(Path(sys.argv[1]))
