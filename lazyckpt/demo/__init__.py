"""`lazyckpt demo`: a training that is killed again and again, and what it has lost by it: nothing.

The rooms: data (lines of real text), training (pipeline, model, checkpoint:
what a user would write), trial (the child process and its end), show.
"""
