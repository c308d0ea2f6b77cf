"""How items are made: by whom, where, and how far ahead of the consumer."""
