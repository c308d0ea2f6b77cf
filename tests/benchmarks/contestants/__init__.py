"""A module for each library. A function `w1` is for row W1, and so is `w1_otherwise`.

It gets the number of items, makes ready, and returns what is measured: a call
that goes through them all, or returns figures of its own. Where a library has
several ways, the best counts; each is what its own documentation advises.
"""
