"""A drop-in replacement for `emloop.datasets.StreamWrapper`, with a state."""

from lazyckpt.compat.emloop.stream_wrapper import StreamWrapper

__all__ = ["StreamWrapper"]
