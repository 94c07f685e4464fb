"""Request frames made by hand, and a server connection that takes them."""

from collections.abc import Callable
from struct import pack
from typing import Any

from support.kafka_pair import PairConnection, ScriptedBroker, joined

from barnabas.adapters.wire_kafka import KafkaServer
from barnabas.adapters.wire_kafka.table import BY_KEY, BY_REQUEST
from barnabas.core.traffic.steps import StepRunner


def newest(request: Any) -> int:
    """Return the newest version in which a client sends such a request."""
    api = BY_REQUEST[type(request)]
    return api.versions[1] if api.most_version is None else min(api.versions[1], api.most_version(request))


def request_frame(key: int, version: int, correlation_id: int, request: Any, client_id: str | None = "c1") -> bytes:
    """Return a request of one of our samples as a frame."""
    api = BY_KEY[key]
    writer = api.writer(version)
    writer.out += header(key, version, correlation_id, client_id)
    if version >= api.flexible_from:
        writer.end()
    api.request.write(writer, version, request)
    return joined(writer.pieces())


def header(key: int, version: int, correlation_id: int, client_id: str | None = "c1") -> bytes:
    """Return a request header of version 1."""
    start = pack(">hhi", key, version, correlation_id)
    return start + (pack(">h", -1) if client_id is None else pack(">h", len(client_id)) + client_id.encode())


def result_of(key: int, version: int, frame: bytes) -> Any:
    """Return the result in an answer."""
    api = BY_KEY[key]
    reader = api.reader(version, memoryview(frame), 4, 1_000_000)
    if version >= api.flexible_from:
        reader.skip_tags()
    result = api.result.read(reader, version)
    assert reader.position == len(frame)
    return result


def correlation_id_of(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big", signed=True)


class ServerEnd:
    """A `KafkaServer` with one connection, whose other side is the test."""

    def __init__(
        self,
        script: Callable[[Any], Any] | None = None,
        *,
        max_in_flight: int = 64,
        steps: StepRunner | None = None,
        **more: Any,
    ) -> None:
        self.broker = ScriptedBroker(script)
        self.reports: list[str] = []
        self.server = KafkaServer(
            self.broker,
            listener="PLAIN",
            report=self.reports.append,
            max_in_flight=max_in_flight,
            steps=steps,
            **more,
        )
        self.connection = PairConnection(("broker", 9092), ("198.51.100.7", 4321))
        self.connection.handler = self.server.accept(self.connection)

    def send(self, frame: bytes) -> None:
        """Deliver a frame as the transport would, unless the handler has paused or closed."""
        self.connection.inbox.append(frame)
        while self.connection.step():
            pass

    @property
    def answers(self) -> list[bytes]:
        return self.connection.sent
