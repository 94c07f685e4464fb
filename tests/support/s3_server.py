"""Moto's server of S3, in a thread."""

import secrets
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

KEYS = ("an-access-key-id", "a-secret-access-key")


class S3Server:
    """A server of S3 with buckets of its own."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.settings = {"endpoint": endpoint, "access.key.id": KEYS[0], "secret.access.key": KEYS[1]}

    def make_bucket(self) -> str:
        """Make a bucket; return the URL of a prefix in it."""
        name = f"bucket-{secrets.token_hex(6)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
        return f"s3://{name}/kafka"


@contextmanager
def run_s3_server() -> Iterator[S3Server]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
