"""Describe a run before it starts: `explain`."""
