"""Encoders and decoders as other libraries take them, and what is refused when a client is made."""

import json
from typing import Any

import pytest
from support.waiting import PATIENCE_S

from barnabas import Consumer, Producer
from barnabas.core.client.errors import EncodeError
from barnabas.ports.errors import ConfigError
from barnabas.testing import TestBroker


class Encoder:
    def encode(self, topic: str, value: Any) -> bytes:
        return f"{topic}:{value}".encode()


def _dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def test_functions_of_the_value_and_of_the_bytes() -> None:
    with TestBroker() as broker:
        with Producer(broker.bootstrap, encoder=_dumped, key_encoder=str.encode) as producer:
            producer.send("t", {"a": 1}, key="k").result(PATIENCE_S)
            producer.send("t", None, key="k").result(PATIENCE_S)
        with Consumer(broker.bootstrap, decoder=json.loads, key_decoder=bytes.decode) as consumer:
            consumer.assign("t", position="earliest")
            found: list[tuple[Any, Any]] = [(m.key, m.value) for m in consumer.messages(stop_at_end=True)]
    assert found == [("k", {"a": 1}), ("k", None)], "null stays null"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"encoder": 5}, "encoder: int is not a name"),
        ({"key_encoder": Encoder}, r"key_encoder: Encoder is a class; give an object: Encoder\(\.\.\.\)"),
        ({"partitioner": 5}, "partitioner: int is not a Partitioner"),
        ({"callback_handler": 5}, "callback_handler: 5 is no CallbackHandler"),
        ({"event_handler": Encoder()}, "event_handler: .* is no EventHandler"),
    ],
)
def test_unusable_encoder_is_refused_by_the_producer_constructor(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Producer("127.0.0.1:1", **settings)


@pytest.mark.parametrize("name", ["decoder", "key_decoder"])
def test_unusable_decoder_is_refused_by_the_consumer_constructor(name: str) -> None:
    given: dict[str, Any] = {name: Encoder()}
    with pytest.raises(ConfigError, match=f"{name}: Encoder is not a name"):
        Consumer("127.0.0.1:1", **given)


def test_send_with_non_numeric_partition_raises_encode_error() -> None:
    with TestBroker() as broker, Producer(broker.bootstrap) as producer:
        for wrong in ("0", 0.5):
            with pytest.raises(EncodeError, match="expected a number"):
                producer.send("new", b"x", partition=wrong)  # type: ignore[arg-type]  # on purpose
            with pytest.raises(EncodeError, match="expected a number"):
                producer.send_many("new", [b"x"], partition=wrong)  # type: ignore[arg-type]  # on purpose
        assert producer.send("new", b"x", partition=0).result(PATIENCE_S).offset == 0
