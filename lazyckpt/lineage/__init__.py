"""The origins of a run's items: `trace` of one output, `seen` of all, in blocks."""
