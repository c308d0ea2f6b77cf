"""A module per library. A function `w1` is for row W1, and so is `w1_otherwise`.

It takes the number of items, prepares, and returns the function to measure: it iterates over all
items, or returns figures of its own. If a library has several ways, the best one counts; each is
advised by the library's own documentation.
"""
