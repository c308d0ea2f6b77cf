"""Trainers and checkpointers: how to use a pipeline with each of them.

A run, and `lz.torch.loader`, have `state_dict()` and `load_state_dict()`, and most frameworks need
no more. The dict is flat, with ints and strings, below 1 KB. Many frameworks save only that of rank
0. If every stage, including `shard`, is rank-invariant, all ranks have this state, and each rank
loads it into its own pipeline.

`import lazyckpt` imports none of these frameworks; `lz.torch` and the others do on first use. If a
package is missing, an `ImportError` names the extra to install.

`lazyckpt.integrations.trackers` stores states in experiment trackers.

**A loop in torch.** `lz.torch.loader(pipeline, executor)` yields tensors without a copy, pinned if
asked. It has a `len`, and each loop is one epoch, as with torch's DataLoader. Save its
`state_dict()` anywhere; `torch.load(..., weights_only=True)` reads it. `lz.torch.sampler(sampler)`
is a source of the indices that a sampler yields, epoch by epoch.

**Ranks that end together.** With `lz.torch.loader(pipeline, group=torch.distributed.group.WORLD)`
all ranks end a loop at the same step, however many items each has. The state is the same on all
ranks. After a process is lost, call `loader.join(new_group)` on the others, and make a loader
without a state on the new one. If ranks leave their loops by `break`, they must do so at the same
step.

**torchft.** Its `Manager` takes the loader's `state_dict` and `load_state_dict`. If all ranks share
one state, a replacement replica takes its position from a running replica. Items that it would have
received while it was away are not delivered to any replica.

**torch's DataLoader.** `DataLoader(lz.torch.dataset(pipeline), batch_size=None, num_workers=4)`
yields the pipeline's order with any number of workers. It has no state, because the position is in
the workers. If the DataLoader has a `batch_size`, pass it to the dataset too.

**torchdata's StatefulDataLoader.** Use it the same way. Its `state_dict()` has the position of each
worker, and loads with the same number of workers. `lz.torch.state(...)` extracts the pipeline's own
state.

**torch DCP.** A run is `Stateful`: `dcp.save({"model": model, "data": run}, ...)`, and `dcp.load`
with the same dict. `dcp.load` reads the keys of the new job's run. For a different number of ranks,
or other options, load into a run like the saved one and pass its state to the new run. If
`async_save` writes later, it still writes the state of its own step.

**torchtitan.** A `BaseDataLoader` has `__iter__`, `state_dict` and `load_state_dict`. Use those of
a `lz.torch.loader`, with a `map` that makes `(inputs, labels)` from a batch. If you pass
`lz.rebase(state, pipeline)` to `load_state_dict`, the data-parallel degree may change between runs,
with filters, mixtures and packing before `shard`. The how-to guide on pretraining has an example.

**Accelerate.** With `lz.accelerate.prepare(accelerator, loader)`, `save_state` and `load_state`
include the loader's state, and `accumulate` steps at the last batch of each epoch. `lz.shard`
gives each rank its batches, and `lz.to_device` moves them. Without `accumulate`,
`accelerator.register_for_checkpointing(run)` is enough. A DataLoader passed through
`accelerator.prepare` draws one batch ahead of its state.

**Lightning.** With `trainer.fit(model, lz.torch.loader(pipeline))`, checkpoints include the
loader's state, also within epochs. If `len` is unknown, Lightning draws one batch ahead, and a
resume loses it: pass `epoch_size`. `lz.lightning.PipelineCallback()` makes checkpoints on an
exception or a signal exact too.

**Hugging Face's Trainer.** After `lz.transformers.feed(trainer, loader)`, rank 0 saves the state in
`trainer_state.json`. A resumed run equals one that never stopped, in steps, epochs and weights.

**JAX, Flax.** With `lz.run(pipeline, executor=lz.jax.device_put(lz.threads(4), sharding))`, the
next item is transferred while you compute, and the state is that after the current item.

**Orbax.** Save `ocp.args.JsonSave(run.state_dict())`, and pass the result of
`ocp.args.JsonRestore()` to `load_state_dict`.

**Prometheus.** `registry.register(lz.prometheus.collector(train=run))` exports a run's throughput
and waiting times, read when they are scraped. `lz.metrics(run)` returns the same for a tracker.

**grain.** `lz.grain.dataset(pipeline)` is an `IterDataset` whose iterators have `get_state` and
`set_state`; `grain.checkpoint.CheckpointSave` accepts them.
"""
