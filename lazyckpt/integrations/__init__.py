"""Runs and states with other packages: nothing here is imported until it is asked for."""
