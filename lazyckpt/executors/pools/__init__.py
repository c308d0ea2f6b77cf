"""Who does it: pools of threads, processes, futures and Ray actors."""
