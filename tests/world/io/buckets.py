"""An S3 server of this machine, as obstore and s3fs reach it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from lazyckpt.io import storage
from tests.world.io.faults import Proxy, proxy

BUCKET = "corpus"
SECRET = "no-one-may-see"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A client of boto's, of a server that has one bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    patch = pytest.MonkeyPatch()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield client
    patch.undo()
    running.stop()


@pytest.fixture
def client(server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same, with nothing in the bucket."""
    monkeypatch.setattr(storage, "opened_storages", {})
    s3fs.S3FileSystem.clear_instance_cache()  # of another server
    for found in server.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        server.delete_object(Bucket=BUCKET, Key=found["Key"])
    return server


def put(client: Any, **contents: bytes) -> None:
    for name, content in contents.items():
        key = f"web/{name.replace('_', '/')}.jsonl"
        client.put_object(Bucket=BUCKET, Key=key, Body=content)


@pytest.fixture
def failing(client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before the server, by which alone it is reached."""
    url = os.environ["AWS_ENDPOINT_URL"]
    put(client, a=b"".join(b"%06d\n" % n for n in range(2000)))
    with proxy(int(url.rpartition(":")[2])) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{found.server_port}")
        monkeypatch.setattr(storage, "opened_storages", {})
        yield found
