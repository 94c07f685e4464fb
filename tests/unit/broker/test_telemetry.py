"""Metrics of clients at a broker that collects none."""

from barnabas.ports.broker_api.telemetry import GetTelemetrySubscriptions, PushTelemetry
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing import ManualBroker


def test_a_client_gets_an_instance_id_and_subscribes_to_nothing() -> None:
    broker = ManualBroker()
    first = broker.ask(GetTelemetrySubscriptions())
    other = broker.ask(GetTelemetrySubscriptions())
    assert any(first.client_instance_id)
    assert first.client_instance_id != other.client_instance_id
    again = broker.ask(GetTelemetrySubscriptions(client_instance_id=first.client_instance_id))
    assert again == first
    assert (first.error, first.requested_metrics, first.push_interval_ms) == (ErrorCode.NONE, (), 300_000)
    pushed = PushTelemetry(
        client_instance_id=first.client_instance_id, subscription_id=first.subscription_id, metrics=b"m"
    )
    assert broker.ask(pushed).error is ErrorCode.NONE
    broker.stop()
