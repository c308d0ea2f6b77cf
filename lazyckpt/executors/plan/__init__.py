"""What can be done where: segments of a pipeline, tasks of a segment, and how to do one."""
