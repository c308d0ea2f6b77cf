"""Work before `shard` that the ranks of a job share: each task is done by one of them."""
