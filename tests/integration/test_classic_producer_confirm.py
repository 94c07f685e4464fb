"""`confirm`: the brokers have dealt with what was sent, though the wire has no answer to it."""

import pytest
from support.ports import free_port

from barnabas import Broker
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.ports.errors import BarnabasError
from barnabas.ports.transport import TransportError


def classic_broker(port: int = 0) -> Broker:
    return Broker(
        listeners=[f"classic://127.0.0.1:{port}"], storage="memory", log_flush_interval=1, message_max_bytes=500
    )


def test_everything_sent_is_proven_once() -> None:
    with classic_broker() as broker, ClassicProducer(coordination=broker) as producer:
        producer.confirm()
        producer.send_many("a", [b"1", b"2"])
        producer.send("b", b"3")
        producer.confirm()
        producer.confirm()
        assert producer.delivered == 3


def test_confirm_raises_once_after_broker_is_closed() -> None:
    port = free_port()
    at = f"0:127.0.0.1:{port}"
    with classic_broker(port) as broker, ClassicProducer(broker_list=at, connect_timeout_ms=500) as producer:
        producer.send("a", b"1")
        broker.close()
        with pytest.raises(BarnabasError):
            producer.confirm()
        producer.confirm()
        with classic_broker(port):
            producer.send("a", b"2")
            producer.confirm()


def test_failed_append_is_raised_by_send_or_confirm() -> None:
    """The broker closes the connection: the wire has no other way. It may do so before `send` returns."""
    with classic_broker() as broker, ClassicProducer(broker_list=f"0:{broker.bootstrap}") as producer:
        producer.send("a", b"1")
        producer.confirm()
        with pytest.raises(TransportError):
            producer.send("a", b"2", partition=7)
            producer.confirm()
