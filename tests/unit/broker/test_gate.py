"""`BrokerService.submit`: each request has one handler, a principal of its connection, and one answer."""

from collections.abc import Callable
from typing import Any

import pytest
from support.kafka_frames import request_frame
from support.kafka_pair import PairConnection
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka import KafkaServer
from barnabas.ports.broker_api.classic import ClassicFetch, ClassicOffsets, ClassicProduce
from barnabas.ports.broker_api.envelope import ANONYMOUS, Caller, Origin, Principal, Request
from barnabas.ports.broker_api.features import DescribeFeatures
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.errors import ApiError
from barnabas.testing.manual_broker import ManualBroker

CLASSIC: list[Request[Any]] = [
    ClassicProduce(partitions=()),
    ClassicFetch(partitions=()),
    ClassicOffsets(topic="t", partition=0, time_ms=-1, max_offsets=1),
]
REQUESTS = [*(sample.request for sample in SAMPLES.values()), DescribeFeatures(), *CLASSIC]
ALICE = Caller(client_id="app", host="127.0.0.1", connection=1, principal=Principal("User", "alice"))


def handle_all_by(broker: ManualBroker, handle: Callable[..., None]) -> None:
    api: Any = broker.node.api
    api._handlers = dict.fromkeys(api._handlers, handle)


def test_each_request_type_has_one_handler() -> None:
    broker = ManualBroker()
    assert set(broker.node.api._handlers) == {type(request) for request in REQUESTS}
    broker.stop()


@pytest.mark.parametrize("request_", [pytest.param(each, id=type(each).__name__) for each in REQUESTS])
def test_request_whose_handler_raises_has_one_answer_in_its_own_form(request_: Request[Any]) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a fault")

    broker = ManualBroker()
    handle_all_by(broker, fail)
    answers: list[object] = []
    broker.node.api.submit(request_, ALICE, answers.append)
    assert len(answers) == 1
    assert "UNKNOWN_SERVER_ERROR" in repr(answers) or isinstance(answers[0], ApiError)
    assert any(f"{type(request_).__name__} from 127.0.0.1 failed" in text for text in broker.reports)
    broker.stop()


def test_request_over_a_connection_without_login_has_the_anonymous_principal() -> None:
    broker = ManualBroker()
    asked: list[tuple[object, Caller]] = []
    handle_all_by(broker, lambda request, caller, _reply: asked.append((request, caller)))
    reports: list[str] = []
    server = KafkaServer(broker.node.api, listener="PLAIN", report=reports.append)
    connection = PairConnection(("broker", 9092), ("198.51.100.7", 4321))
    connection.handler = server.accept(connection)
    connection.inbox.append(request_frame(3, 9, 1, Metadata(topics=None)))
    while connection.step():
        pass
    ((request, caller),) = asked
    assert isinstance(request, Metadata)
    assert (caller.principal, caller.origin, caller.listener) == (ANONYMOUS, Origin.CLIENT, "PLAIN")
    assert str(caller.principal) == "User:ANONYMOUS"
    assert reports == []
    broker.stop()
