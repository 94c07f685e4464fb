"""`Producer.confirm`: everything has arrived, or an error says how much has not."""

import pytest

from barnabas import Broker, Producer
from barnabas.ports.errors import BarnabasError


def test_confirm_raises_once_for_undelivered_messages() -> None:
    with Broker(storage="memory") as broker, Producer(broker.bootstrap, delivery_timeout_ms=300) as producer:
        producer.send("t", b"1")
        producer.confirm()
        broker.close()
        producer.send("t", b"2")
        with pytest.raises(BarnabasError, match="1 message is not known to have arrived"):
            producer.confirm()
        producer.confirm()
