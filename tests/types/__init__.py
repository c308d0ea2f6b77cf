"""Pipelines with their types, for mypy and pyright."""
