"""Drop-in replacements for other libraries: change one import line to use lazyckpt."""
