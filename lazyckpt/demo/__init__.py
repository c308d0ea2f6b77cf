"""`lazyckpt demo`: a training run that is killed again and again, and loses nothing.

The modules: data (lines of real text), training (pipeline, model, checkpoint:
what a user would write), trial (the child process and its end), rank (one of
several ranks that share the reading), ranks (the loss of one of them), screen, show.
"""
