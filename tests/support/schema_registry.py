"""Schema registries for tests."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from confluent_kafka.schema_registry import SchemaRegistryClient
from support.waiting import PATIENCE_S, wait_for

from barnabas.schemas.registry.server import RegistryServer


@contextmanager
def serving(bootstrap: str, topic: str = "_schemas") -> Iterator[str]:
    """A registry in this process that has read its schemas; gives its URL."""
    server = RegistryServer(bootstrap, ("127.0.0.1", 0), topic=topic)
    try:
        url = server.start()
        ask = Asking(url)
        wait_for(lambda: ask("GET", "/subjects")[0] != HTTPStatus.SERVICE_UNAVAILABLE)  # on a slow machine
        yield url
    finally:
        server.stop()


def client_of(url: str) -> SchemaRegistryClient:
    """Return Confluent's own client without retries, so that a test gets each error."""
    return SchemaRegistryClient({"url": url, "max.retries": 0})


class Asking:
    """Bare HTTP."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://")

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and body. `body`: a value, or bytes as they are."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
        given = {"Content-Type": "application/vnd.schemaregistry.v1+json"} if body is not None else {}
        connection = HTTPConnection(self._address, timeout=PATIENCE_S)
        try:
            connection.request(method, path, sent, given | {key.replace("_", "-"): headers[key] for key in headers})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[", b'"')) or text.isdigit() else text

    def code(self, method: str, path: str, body: Any = None) -> tuple[int, int]:
        """Status and error code of a refusal, which has a message."""
        status, answer = self(method, path, body)
        assert answer["message"], answer
        return status, answer["error_code"]

    def register(self, subject: str, schema: str, **members: Any) -> int:
        """Return the id. Raises an error for a refusal, unless the brokers of a busy machine are late."""
        deadline = time.monotonic() + PATIENCE_S
        path, body = f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, **members}
        while (result := self("POST", path, body))[0] == 503 and time.monotonic() < deadline:
            pass
        status, answer = result
        assert status == 200, answer
        number: int = answer["id"]
        return number
