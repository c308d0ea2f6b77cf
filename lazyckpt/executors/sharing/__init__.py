"""Share the work before `shard` among the ranks of a job: one rank does each task."""
