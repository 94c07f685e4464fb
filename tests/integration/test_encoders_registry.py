"""Our encoders against our registry, from producer to consumer, in both generations and beside Confluent's client."""

import json
from typing import Any

import attrs
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.schema_registry import client_of, serving
from support.waiting import PATIENCE_S, wait_for

from barnabas import Broker, Consumer, Producer, SimpleConsumer
from barnabas.schemas import AvroEncoder


@attrs.frozen
class Order:
    id: int
    note: str | None = None


def test_typed_messages_come_through_and_schemas_grow() -> None:
    with (
        Broker(storage="memory", coordination="memory") as broker,
        serving(broker.bootstrap) as url,
        client_of(url) as theirs,
    ):
        context = SerializationContext("orders", MessageField.VALUE)
        with Producer(broker, encoder=AvroEncoder(url), key_encoder=AvroEncoder(url, "long", is_key=True)) as producer:
            producer.send("orders", Order(1, "first"), key=7).result(PATIENCE_S)
        grown = {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "long"}, {"name": "sum", "type": "double", "default": 0.0}],
        }
        with Producer(broker) as producer:
            producer.send("orders", AvroSerializer(theirs, json.dumps(grown))({"id": 2, "sum": 9.5}, context)).result(
                10
            )
        narrowed = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
        with (
            Producer(broker, encoder=AvroEncoder(url, narrowed)) as producer,
            pytest.raises(Exception, match="change the schema so that it is compatible"),
        ):
            producer.send("orders", {"id": "3"}).result(PATIENCE_S)
        with Consumer(broker, decoder=AvroEncoder(url, Order), key_decoder=AvroEncoder(url)) as consumer:
            consumer.assign("orders", position="earliest")
            found: list[Any] = [(message.key, message.value) for message in consumer.messages(stop_at_end=True)]
        assert found == [(7, Order(1, "first")), (None, Order(2))]
        with Consumer(broker) as consumer:
            consumer.assign("orders", position="earliest")
            first, _ = [message.value for message in consumer.messages(stop_at_end=True)]
        assert AvroDeserializer(theirs)(first, context) == {"id": 1, "note": "first"}
        assert sorted(theirs.get_subjects()) == ["orders-key", "orders-value"]


@pytest.mark.slow
def test_classic_messages_have_their_schemas_id() -> None:
    both = ("kafka://127.0.0.1:0", "classic://127.0.0.1:0")
    with Broker(storage="memory", coordination="memory", listeners=both) as broker, serving(broker.bootstrap) as url:
        classic = next(each for each in broker.listeners if each.startswith("classic://"))
        encoder = AvroEncoder(url)
        with Producer(classic, encoder=encoder) as producer:
            producer.send("views", Order(5))
        with SimpleConsumer(classic) as consumer:
            wait_for(lambda: consumer.offset_at("views", 0, -1) > 0)
            [piece] = consumer.read("views", 0, 0)
            [message] = piece
        assert AvroEncoder(url, Order).decode("views", message.value) == Order(5)
