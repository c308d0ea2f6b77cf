"""Executors: they decide where items are computed, and how far ahead of the consumer."""
