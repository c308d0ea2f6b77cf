"""Drawings of the documentation, made from the library, the figures, and a recording."""
