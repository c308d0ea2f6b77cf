"""Plan the work of workers: segments of a pipeline, tasks of a segment, and their handlers."""
