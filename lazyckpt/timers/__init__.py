"""Measure the time of each stage of a running pipeline, for `profile`."""
