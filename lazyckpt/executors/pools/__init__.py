"""Pools of workers: threads, processes, futures and Ray actors."""
