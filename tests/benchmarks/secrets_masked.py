"""What the masking of secrets costs, for the texts that are worst for its rules."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from harness import Row

from lazyckpt.core.secrets import masked

PIECES = (
    "://", ":/", "a:/b:", "a:", "sk-", "a", "a.", "password", "password='", "&a", "?password",
    "https://a", "bearer ", "eyJ", "eyJaaaaaaaa.", "=:", "token=", "\\", "password\\", "A_",
    "-----BEGIN PRIVATE KEY-----", "password ", "auth=(", "secret=[",
)  # fmt: skip
SHORT, LONG = 1 << 13, 1 << 16  # characters
BOUND = 20  # 8 where the time is linear, 64 where it is quadratic


def secrets(rounds: int) -> Iterator[Row]:
    """The piece whose repetition takes longest, and the one whose time grows most."""
    ratios, costs = [], []
    for _ in range(rounds):
        short, long = ([spent(piece, count) for piece in PIECES] for count in (SHORT, LONG))
        ratios.append(max(b / max(a, 1e-3) for a, b in zip(short, long, strict=True)))
        costs.append(max(long) * 1e3)
    yield Row("secrets", f"masked: {LONG:,} / {SHORT:,} characters, the worst", ratios, "", BOUND)
    yield Row("secrets", f"masked: {LONG:,} characters, the worst", costs, "ms")


def spent(piece: str, count: int) -> float:
    text = piece * (count // len(piece))
    begun = process_time()
    masked(text)
    return process_time() - begun
