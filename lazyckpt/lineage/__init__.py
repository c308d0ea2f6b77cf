"""Where the items of a run come from: `trace` of one output, `seen` of all, in blocks."""
