"""`lazyckpt demo`: a training run that is killed repeatedly and loses nothing.

The modules: data (lines of real text), training (pipeline, model and checkpoint, as a user would
write them), child (a process and its output), trial (the training run in such a process), rank
(one of several ranks that share the reading), ranks (the loss of one of them), screen, show.
"""
