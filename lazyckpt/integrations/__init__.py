"""Trainers and checkpointers: what you write, what is saved, what to know.

A run, and `lz.torch.loader`, have `state_dict()` and `load_state_dict()`, and
most frameworks need no more. The dict is flat, of ints and texts, below 1 KB.
Many save only that of rank 0. Where every stage is rank-invariant, `shard` among
them, it is that of all ranks: each rank loads it into its own pipeline.

`import lazyckpt` imports none of these; `lz.torch` and its like do on first
use, and an `ImportError` names the extra to install.
`lazyckpt.integrations.trackers` stores states in experiment trackers.

**A loop in torch.** `lz.torch.loader(pipeline, executor)`: tensors without a copy,
pinned if asked, `len`, one epoch a loop, as with torch's DataLoader. Save its `state_dict()`
wherever you like; `torch.load(..., weights_only=True)` reads it. `lz.torch.sampler(sampler)` is a
source of the indices that a sampler gives, epoch by epoch.

**Ranks that end together.** `lz.torch.loader(pipeline, group=torch.distributed.group.WORLD)`: all
ranks end a loop at the same step, whatever each has. The state is equal on all. After a
process was lost, `loader.join(new_group)` on those that are left, and a loader without a state
on the new one. Where ranks leave their loops by `break`, they do so at the same step.

**torchft.** Its `Manager` takes the loader's `state_dict` and `load_state_dict`: a replica that
is replaced has its place of another one, where the state is that of all ranks. What it would
have had in the steps that were done without it, nobody gets.

**torch's DataLoader.** `DataLoader(lz.torch.dataset(pipeline), batch_size=None,
num_workers=4)`: the order is the pipeline's with any number of workers. It saves
nothing: the place is in the workers. If the DataLoader has a `batch_size`, give it to
the dataset too.

**torchdata's StatefulDataLoader.** The same, and its `state_dict()` has the place of
each worker, for as many of them. `lz.torch.state(...)` finds the pipeline's own in it.

**torch DCP.** `dcp.save({"model": model, "data": run}, ...)` and `dcp.load` alike: a run is
`Stateful`. It loads the keys that the new job's run has: for another number of ranks, or other
options, load into a run as it was, and give its state to the new one. What `async_save` writes
later is the state of its own step.

**torchtitan.** A `BaseDataLoader` has `__iter__`, `state_dict` and `load_state_dict`: those of
a `lz.torch.loader`, whose batches a `map` makes `(inputs, labels)`. Give `load_state_dict`
`lz.rebase(state, pipeline)`, and the data-parallel degree may be another one after a resume, with
filters, mixtures and packing before `shard`. The how-to guide on pretraining has one.

**Accelerate.** `lz.accelerate.prepare(accelerator, loader)`: `save_state` and `load_state` include
the loader's state, and `accumulate` steps at the last batch of each epoch. `lz.shard` gives each
rank its batches and `lz.to_device` moves them. Without `accumulate`,
`accelerator.register_for_checkpointing(run)` is enough. A DataLoader that goes through
`accelerator.prepare` draws one batch ahead of its state.

**Lightning.** `trainer.fit(model, lz.torch.loader(pipeline))`: its checkpoints have the
loader's state, within epochs too. Where `len` is unknown Lightning draws one batch ahead,
and a resume drops it: give `epoch_size`. `lz.lightning.PipelineCallback()` makes checkpoints
on an exception or a signal exact too.

**Hugging Face's Trainer.** `lz.transformers.feed(trainer, loader)`: rank 0 saves the state
in `trainer_state.json`, and a resumed run equals one that was never stopped, in steps, epochs
and weights too.

**JAX, Flax.** `lz.run(pipeline, executor=lz.jax.device_put(lz.threads(4), sharding))`: the next
item is on its way while you compute, and the state is that of the one you have.

**Orbax.** `ocp.args.JsonSave(run.state_dict())`, and `load_state_dict` of what
`ocp.args.JsonRestore()` finds.

**Prometheus.** `registry.register(lz.prometheus.collector(train=run))`: a run's speed and waits, as
they are when they are scraped; `lz.metrics(run)` is the same for a tracker.

**grain.** `lz.grain.dataset(pipeline)`, an `IterDataset` whose iterators have `get_state` and
`set_state`; `grain.checkpoint.CheckpointSave` accepts them.
"""
