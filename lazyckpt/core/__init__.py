"""Machines, and the stored calls that build them."""
