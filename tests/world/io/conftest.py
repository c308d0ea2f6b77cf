"""Indices are kept in a folder of these tests' own; an S3 server of this machine."""

from tests.io.conftest import cache  # noqa: F401
from tests.world.io.buckets import client, failing, server  # noqa: F401
