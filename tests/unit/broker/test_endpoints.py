"""Clients get the address of the listener that they are connected to."""

import pytest

from barnabas.app.broker.state.endpoints import Endpoints
from barnabas.app.config import ListenAddress
from barnabas.core.cluster.topics import BrokerRegistration
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.envelope import Caller, Origin


def caller(listener: ListenAddress, host: str = "10.0.0.9") -> Caller:
    return Caller(host=host, listener=str(listener))


INSIDE = ListenAddress("kafka", "127.0.0.1", 9092)
OUTSIDE = ListenAddress("kafka", "10.0.0.5", 9093)


def test_each_listener_has_its_own_advertised_address() -> None:
    observed = Endpoints(
        1, [INSIDE, OUTSIDE], [ListenAddress("kafka", "in", 1), ListenAddress("kafka", "out", 2)], "me"
    )
    assert observed.own_address(caller(INSIDE)) == ("in", 1)
    assert observed.own_address(caller(OUTSIDE)) == ("out", 2)
    assert observed.registered() == ("kafka://in:1", "kafka://out:2")


def test_bound_address_is_returned_without_advertised_listeners() -> None:
    observed = Endpoints(1, [INSIDE, OUTSIDE], [], "me")
    assert observed.own_address(caller(OUTSIDE)) == ("10.0.0.5", 9093)


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "127.0.0.1"), ("::1", "127.0.0.1"), ("10.0.0.9", "me.example")]
)
def test_wildcard_listener_is_advertised_by_host_name_except_to_loopback_clients(host: str, expected: str) -> None:
    everywhere = ListenAddress("kafka", "", 9092)
    observed = Endpoints(1, [everywhere], [], "me.example")
    assert observed.own_address(caller(everywhere, host)) == (expected, 9092)
    assert observed.registered() == ("kafka://me.example:9092",)


def test_metadata_lists_other_brokers_by_matching_listener() -> None:
    observed = Endpoints(1, [INSIDE, OUTSIDE], [], "me")
    live = {
        1: BrokerRegistration(broker_id=1, endpoints=observed.registered()),
        2: BrokerRegistration(broker_id=2, endpoints=("kafka://b:1", "kafka://b:2"), rack="r"),
        3: BrokerRegistration(broker_id=3, endpoints=("quic://c:1",)),
    }
    assert observed.nodes(live, caller(OUTSIDE)) == [
        BrokerNode(node_id=1, host="10.0.0.5", port=9093),
        BrokerNode(node_id=2, host="b", port=2, rack="r"),
    ]


def test_unregistered_broker_lists_itself_in_metadata() -> None:
    endpoints = Endpoints(1, [INSIDE, OUTSIDE], [], "me", rack="r1")
    other = BrokerRegistration(broker_id=2, endpoints=("kafka://b:1", "kafka://b:2"))
    own = BrokerNode(node_id=1, host="10.0.0.5", port=9093, rack="r1")
    assert endpoints.nodes_with_own({}, caller(OUTSIDE)) == [own]
    assert endpoints.nodes_with_own({2: other}, caller(OUTSIDE)) == [BrokerNode(node_id=2, host="b", port=2), own]


def test_caller_on_the_inter_broker_listener_may_be_a_broker() -> None:
    observed = Endpoints(1, [INSIDE, OUTSIDE], [], "me", 0)
    assert observed.is_from_broker(caller(INSIDE))
    assert not observed.is_from_broker(caller(OUTSIDE))
    assert not observed.is_from_broker(Caller(listener="kafka://elsewhere:1"))
    assert not observed.is_from_broker(Caller())
    assert observed.is_from_broker(Caller(origin=Origin.BROKER))
    assert not Endpoints(1, [INSIDE], [], "me").is_from_broker(caller(INSIDE))


@pytest.mark.parametrize(
    ("endpoints", "index", "expected"),
    [
        (("kafka://a:1", "kafka://b:2"), 1, ("b", 2)),
        (("kafka://a:1",), 1, None),
        ((), 0, None),
        (("kafka://a:1",), -1, None),
        (("quic://a:1",), 0, None),
    ],
)
def test_where_brokers_reach_another(endpoints: tuple[str, ...], index: int, expected: tuple[str, int] | None) -> None:
    other = BrokerRegistration(broker_id=2, endpoints=endpoints, inter_broker=index)
    assert Endpoints(1, [INSIDE], [], "me", 0).inter_broker_address(other) == expected


PLAIN = ListenAddress("kafka", "127.0.0.1", 9092, "PLAINTEXT")
SECURE = ListenAddress("kafka", "127.0.0.1", 9093, "SASL_SSL", security="SASL_SSL")


def registered(*names: str, inter_broker: int = 0) -> BrokerRegistration:
    """Broker 2, which is at port 1 by the listener PLAINTEXT, and at port 2 by SASL_SSL."""
    ports = {"PLAINTEXT": 1, "SASL_SSL": 2}
    endpoints = tuple(f"kafka://b:{ports[name]}" for name in names)
    return BrokerRegistration(broker_id=2, endpoints=endpoints, listener_names=names, inter_broker=inter_broker)


def test_clients_get_the_listener_of_the_same_name_while_brokers_have_different_ones() -> None:
    both = Endpoints(1, [PLAIN, SECURE], [], "me", 0)
    secure = Endpoints(1, [SECURE], [], "me", 0)

    def others(endpoints: Endpoints, listener: ListenAddress, other: BrokerRegistration) -> list[int]:
        return [node.port for node in endpoints.nodes({2: other}, caller(listener))]

    assert others(secure, SECURE, registered("PLAINTEXT", "SASL_SSL")) == [2]
    assert others(both, SECURE, registered("SASL_SSL")) == [2]
    assert others(both, PLAIN, registered("SASL_SSL")) == []
    assert others(both, PLAIN, registered("SASL_SSL", "PLAINTEXT")) == [1]


def test_broker_reaches_others_by_the_listener_that_it_uses_itself_for_brokers() -> None:
    before = Endpoints(1, [PLAIN, SECURE], [], "me", 0)
    after = Endpoints(1, [PLAIN, SECURE], [], "me", 1)
    names = "PLAINTEXT", "SASL_SSL"
    assert before.inter_broker_address(registered(*names, inter_broker=1)) == ("b", 1)
    assert after.inter_broker_address(registered(*names, inter_broker=0)) == ("b", 2)
    assert after.inter_broker_address(registered("PLAINTEXT")) == ("b", 1)  # it has no other one
    older = BrokerRegistration(broker_id=2, endpoints=("kafka://b:1", "kafka://b:2"), inter_broker=0)
    assert after.inter_broker_address(older) == ("b", 1)


def test_broker_is_recognized_by_the_listener_of_its_own_registration_while_the_listener_for_brokers_changes() -> None:
    after = Endpoints(1, [PLAIN, SECURE], [], "me", 1)
    assert after.is_from_broker(caller(PLAIN), registered("PLAINTEXT", "SASL_SSL", inter_broker=0))
    assert not after.is_from_broker(caller(PLAIN), registered("PLAINTEXT", "SASL_SSL", inter_broker=1))
    assert not after.is_from_broker(caller(PLAIN))
