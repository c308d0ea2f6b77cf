"""The combinators: each is one function, with its validation, its step and its lanes."""
