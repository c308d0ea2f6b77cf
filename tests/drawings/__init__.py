"""Drawings of the documentation, made from the library and the figures."""
