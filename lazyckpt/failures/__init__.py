"""Errors: the notes they carry, and records that are skipped."""
