"""The public combinators, one or a family per module; what several share is in `machines`."""
