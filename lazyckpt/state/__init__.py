"""States: what they are, and what can be done with them."""
