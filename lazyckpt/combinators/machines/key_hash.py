"""A 64-bit hash of a key returned by a user's function."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from lazyckpt.core.checks import brief, is_integer

Key = str | bytes | int


def key_hash(stage: str, argument: str, value: Any) -> int:
    """Hash a str, bytes or an int; a `TypeError` names stage and argument for other types."""
    if isinstance(value, str):
        told = b"s" + value.encode("utf-8", "surrogatepass")
    elif isinstance(value, bytes):
        told = b"b" + value
    elif is_integer(value):
        told = b"i%d" % int(value)
    else:
        raise TypeError(
            f"{stage}: {argument} must return a str, bytes or an int, got {brief(value)} "
            f"({type(value).__name__})"
        )
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "little")
