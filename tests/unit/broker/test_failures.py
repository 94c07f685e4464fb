"""Handlers that fail: every request is answered in its own form, in every version, and the connection continues."""

from typing import Any

import pytest
from support.kafka_frames import header, request_frame
from support.kafka_pair import PairConnection
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka import KafkaServer
from barnabas.adapters.wire_kafka.api import Api
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.core.replica.purgatory import DelayedOperation, Purgatory
from barnabas.ports.broker_api.fetch import FetchResult
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

CODE = ErrorCode.UNKNOWN_SERVER_ERROR
WITHOUT_A_PLACE = {(35, 0), (35, 1), (35, 2), (43, 0)}
"""Versions whose answer is a list of what was found, without an error for all of it."""


class Failing:
    """A broker on a connection whose handlers all raise."""

    def __init__(self) -> None:
        self.broker = ManualBroker()
        self.reports: list[str] = []
        api: Any = self.broker.node.api
        api._handlers = dict.fromkeys(api._handlers, self._fail)
        server = KafkaServer(api, listener="PLAIN", report=self.reports.append, topic_name=bytes.hex)
        self.connection = PairConnection(("broker", 9092), ("198.51.100.7", 4321))
        self.connection.handler = server.accept(self.connection)

    def _fail(self, request: object, caller: object, reply: object) -> None:
        raise KeyError("a fault")

    def exchange(self, frame: bytes) -> bytes:
        self.connection.inbox.append(frame)
        while self.connection.step():
            pass
        assert not self.connection.is_closed, self.reports
        return self.connection.sent.pop()


def errors_in(result: Any) -> set[ErrorCode]:
    """Return every error code anywhere in a result."""
    if isinstance(result, ErrorCode):
        return {result}
    if isinstance(result, list | tuple):
        return {code for item in result for code in errors_in(item)}
    names = [attribute.name for attribute in getattr(type(result), "__attrs_attrs__", ())]
    return {code for name in names for code in errors_in(getattr(result, name))}


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in BY_KEY.values()])
def test_a_request_whose_handler_fails_is_answered(api: Api) -> None:
    end = Failing()
    for version in range(api.versions[0], api.versions[1] + 1):
        request = SAMPLES[api.key].at(version).request
        if api.least_version is not None and version < api.least_version(request):
            continue
        frame = end.exchange(request_frame(api.key, version, version, request))
        reader = api.reader(version, memoryview(frame), 4, 10_000)
        if version >= api.flexible_from:
            reader.skip_tags()
        result = api.result.read(reader, version)
        assert reader.position == len(frame)
        if (api.key, version) not in WITHOUT_A_PLACE:
            assert CODE in errors_in(result), f"version {version}: {result}"
    assert end.exchange(header(18, 0, 5))
    assert all("KeyError" in line for line in end.broker.reports if "failed" in line)


def test_an_answer_without_a_place_for_the_error_is_a_closed_connection() -> None:
    end = Failing()
    end.connection.inbox.append(request_frame(3, 9, 1, Metadata(topics=None)))
    while end.connection.step():
        pass
    assert end.connection.is_closed
    assert "Metadata failed: UNKNOWN_SERVER_ERROR" in end.reports[0]


def test_an_answer_that_no_encoder_understands_closes_the_connection() -> None:
    end = Failing()
    api: Any = end.broker.node.api
    wrong: Any = [("not", "a partition")]
    api._handlers = dict.fromkeys(api._handlers, lambda _r, _c, reply: reply(FetchResult(partitions=wrong)))
    end.connection.inbox.append(request_frame(1, 12, 1, SAMPLES[1].at(12).request))
    while end.connection.step():
        pass
    assert end.connection.is_closed
    (line,) = end.reports
    assert "the answer to Fetch cannot be encoded" in line
    assert "AttributeError" in line


class _Broken(DelayedOperation):
    """Raises when it is looked at."""

    def check(self, key: object) -> bool:
        raise RuntimeError("not even this")


def test_waiting_request_that_fails_is_answered() -> None:
    broker = ManualBroker()
    errors: list[BaseException] = []
    purgatory = Purgatory(broker.scheduler, errors.append)
    observed: list[str] = []

    def fail() -> None:
        raise RuntimeError("no")

    purgatory.watch(_Broken(fail, lambda: observed.append("failed")), ["x"], 100)
    purgatory.watch(_Broken(lambda: observed.append("finished"), fail), ["x"], 100)
    purgatory.check("x")
    assert observed == ["failed", "finished"]
    assert len(errors) == 3
    assert len(purgatory) == 0
