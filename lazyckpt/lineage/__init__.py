"""What a run was given: the origins of all its items, in blocks."""
