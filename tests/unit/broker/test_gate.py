"""The gate: every request is asked about before its handler sees it, whoever sends it."""

from typing import Any

import pytest
from support.kafka_frames import request_frame
from support.kafka_pair import PairConnection
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka import KafkaServer
from barnabas.ports.broker_api.classic import ClassicFetch, ClassicOffsets, ClassicProduce
from barnabas.ports.broker_api.envelope import ANONYMOUS, Caller, Origin, Principal, Request
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.testing.manual_broker import ITSELF, ManualBroker, produce

CLASSIC: list[Request[Any]] = [
    ClassicProduce(partitions=()),
    ClassicFetch(partitions=()),
    ClassicOffsets(topic="t", partition=0, time_ms=-1, max_offsets=1),
]
REQUESTS = [*(sample.request for sample in SAMPLES.values()), *CLASSIC]
ALICE = Caller(client_id="app", host="127.0.0.1", connection=1, principal=Principal("User", "alice"))


class Rule:
    """Refuses, and notes what it was asked."""

    def __init__(self, refusal: ApiError | None) -> None:
        self.refusal = refusal
        self.asked: list[tuple[object, Caller]] = []

    def __call__(self, request: Request[Any], caller: Caller) -> ApiError | None:
        self.asked.append((request, caller))
        return self.refusal


def gated(refusal: ApiError | None = None) -> tuple[ManualBroker, Rule]:
    rule = Rule(refusal)
    return ManualBroker(authorizer=rule), rule


def test_there_is_no_handler_past_it() -> None:
    broker, _ = gated()
    assert set(broker.node.api._handlers) == {type(request) for request in REQUESTS}
    broker.stop()


@pytest.mark.parametrize("request_", [pytest.param(each, id=type(each).__name__) for each in REQUESTS])
def test_what_it_refuses_reaches_no_handler(request_: Request[Any]) -> None:
    broker, rule = gated(ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you"))
    handled: list[object] = []
    api: Any = broker.node.api
    api._handlers = dict.fromkeys(api._handlers, lambda *arguments: handled.append(arguments))
    answers: list[object] = []
    api.submit(request_, ALICE, answers.append)
    assert rule.asked == [(request_, ALICE)]
    assert handled == []
    assert "CLUSTER_AUTHORIZATION_FAILED" in repr(answers) or isinstance(answers[0], ApiError)
    assert len(answers) == 1
    broker.stop()


def test_what_comes_over_a_connection_is_anonymous_whatever_it_calls_itself() -> None:
    broker, rule = gated()
    reports: list[str] = []
    server = KafkaServer(broker.node.api, listener="PLAIN", report=reports.append)
    connection = PairConnection(("broker", 9092), ("198.51.100.7", 4321))
    connection.handler = server.accept(connection)
    connection.inbox.append(request_frame(3, 9, 1, Metadata(topics=None)))
    while connection.step():
        pass
    ((request, caller),) = rule.asked
    assert isinstance(request, Metadata)
    assert (caller.principal, caller.origin, caller.listener) == (ANONYMOUS, Origin.CLIENT, "PLAIN")
    assert str(caller.principal) == "User:ANONYMOUS"
    assert reports == []
    broker.stop()


def test_the_broker_itself_is_asked_about_too() -> None:
    broker, rule = gated()
    broker.create("t")
    rule.asked.clear()
    broker.ask(produce("t", b"x"), ITSELF)
    assert [caller for _, caller in rule.asked] == [ITSELF]
    broker.stop()


def test_a_rule_that_raises_lets_nothing_pass() -> None:
    def broken(request: Request[Any], caller: Caller) -> None:
        if isinstance(request, Produce):
            raise KeyError("a fault")

    broker = ManualBroker(authorizer=broken)
    broker.create("t")
    answers: list[Any] = []
    broker.node.api.submit(produce("t", b"x"), ALICE, answers.append)
    assert [each.error for each in answers[0].partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert broker.values("t") == []
    assert any("Produce from 127.0.0.1 failed" in text for text in broker.reports)
    broker.stop()
