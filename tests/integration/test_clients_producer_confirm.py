"""`Producer.confirm`: everything has arrived, or an error says how much has not."""

import pytest

from barnabas import Broker, Producer
from barnabas.ports.errors import BarnabasError


def test_confirm_raises_once_for_undelivered_messages() -> None:
    with Broker(storage="memory") as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("t", b"1")
            producer.confirm()
        address = broker.bootstrap
    with Producer(address, delivery_timeout_ms=300) as producer:
        producer.send("t", b"2")
        with pytest.raises(BarnabasError, match="1 message is not known to have arrived"):
            producer.confirm()
        producer.confirm()
