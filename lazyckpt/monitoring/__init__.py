"""Observation of runs: metrics, progress, and which stage is slow."""
