"""States: their form, and the functions on them."""
