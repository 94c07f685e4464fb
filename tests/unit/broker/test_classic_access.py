"""A classic listener for some addresses and certificates only, or without producing."""

from typing import Any

import pytest

from barnabas.app.broker.lifecycle.authorization import classic_access
from barnabas.app.config import BrokerConfig
from barnabas.ports.broker_api.classic import ClassicOffsets, ClassicProduce, ClassicProducePartition
from barnabas.ports.broker_api.envelope import ANONYMOUS, Caller, Origin, Principal, Reply, Request
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ConfigError
from barnabas.ports.transport import TransportError

OFFSETS = ClassicOffsets(topic="t", partition=0, time_ms=-1, max_offsets=1)
PRODUCE = ClassicProduce(partitions=[ClassicProducePartition("t", 0, memoryview(b""))])


class Everything:
    """Answers every request."""

    def submit(self, request: Request[Any], _caller: Caller, reply: Reply[Any]) -> None:
        reply(f"answer to {type(request).__name__}")


def answer(request: Request[Any], host: str, principal: Principal = ANONYMOUS, **settings: Any) -> Any:
    config = BrokerConfig.from_mapping({"listeners": "CLASSIC://:0,kafka://:0", **settings})
    access = classic_access(config, config.listener_list[0], Everything())
    answers: list[Any] = []
    access.submit(request, Caller(host=host, principal=principal), answers.append)
    return answers[0]


def test_listener_without_limits_costs_nothing() -> None:
    api = Everything()
    config = BrokerConfig.from_mapping({"listeners": "classic://:0"})
    assert classic_access(config, config.listener_list[0], api) is api


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [("10.1.2.3", True), ("192.168.0.7", True), ("192.168.0.8", False), ("::ffff:10.0.0.1", True), ("", False)],
)
def test_address_outside_the_allowed_networks_is_cut(host: str, is_allowed: bool) -> None:
    found = answer(OFFSETS, host, classic_allowed_addresses="10.0.0.0/8,192.168.0.7")
    assert isinstance(found, TransportError) is not is_allowed


def test_certificate_of_another_subject_is_cut() -> None:
    allowed: dict[str, Any] = {"classic_allowed_subjects": ("User:CN=loader,O=Example",)}
    assert answer(OFFSETS, "h", Principal("User", "CN=loader,O=Example"), **allowed) == "answer to ClassicOffsets"
    assert isinstance(answer(OFFSETS, "h", **allowed), TransportError)


def test_read_only_listener_refuses_to_produce_and_answers_the_rest() -> None:
    refused = answer(PRODUCE, "h", classic_read_only=True).partitions[0]
    assert refused.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "classic.read.only" in refused.error_message
    assert answer(OFFSETS, "h", classic_read_only=True) == "answer to ClassicOffsets"


def test_broker_itself_is_never_cut() -> None:
    config = BrokerConfig.from_mapping({"listeners": "classic://:0", "classic_allowed_addresses": "10.0.0.1"})
    answers: list[Any] = []
    classic_access(config, config.listener_list[0], Everything()).submit(
        OFFSETS, Caller(origin=Origin.BROKER), answers.append
    )
    assert answers == ["answer to ClassicOffsets"]


def test_limits_of_one_listener_do_not_concern_another() -> None:
    named: dict[str, Any] = {"listener.name.classic.classic.read.only": "true"}
    assert answer(PRODUCE, "h", **named).partitions[0].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_bad_network_refuses_the_start() -> None:
    with pytest.raises(ConfigError, match=r"classic\.allowed\.addresses"):
        answer(OFFSETS, "h", classic_allowed_addresses="10.0.0.0/99")
