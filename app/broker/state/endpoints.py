"""The addresses that clients get, by the listener of their connection."""

import ipaddress
from collections.abc import Mapping, Sequence

from ....core.cluster.topics import BrokerRegistration
from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.envelope import Caller, Origin
from ....ports.errors import ConfigError
from ....ports.transport import Address
from ...config import ListenAddress, advertised, parse_listener

IN_PROCESS = ("in-process", 0)
"""The address of a broker without a listener."""


class Endpoints:
    """The addresses of this broker and the others, by listener. Listeners of the same name belong together.

    So brokers may have different listeners while these change by a rolling restart.
    `host_name` is advertised for a listener on every interface without an advertised one (as Kafka does); clients on
    this machine get the loopback address instead. `inter_broker`: the index of the listener for other brokers; None:
    there is none.
    """

    def __init__(
        self,
        node_id: int,
        bound: Sequence[ListenAddress],
        given: Sequence[ListenAddress],
        host_name: str,
        inter_broker: int | None = None,
        rack: str | None = None,
    ) -> None:
        self.inter_broker = inter_broker
        self._node_id = node_id
        self._rack = rack
        self._everywhere = [not listener.host and not given for listener in bound]
        self._advertised = advertised(bound, given, host_name)
        self._index = {str(listener): index for index, listener in enumerate(bound)}
        self.names = tuple(listener.name for listener in bound)
        """The name of each listener."""

    def registered(self) -> tuple[str, ...]:
        """Return the endpoints for the registry of brokers."""
        return tuple(str(listener) for listener in self._advertised)

    def advertised_listener(self, protocol: str) -> ListenAddress:
        """Return the advertised address of the first listener of a protocol; there must be one."""
        return next(listener for listener in self._advertised if listener.protocol == protocol)

    def own_address(self, caller: Caller) -> Address:
        """Return the address at which `caller` reaches this broker."""
        if not self._advertised:
            return IN_PROCESS
        index = self._index.get(caller.listener, 0)
        listener = self._advertised[index]
        if self._everywhere[index] and _is_loopback(caller.host):
            return ("127.0.0.1", listener.port)
        return (listener.host, listener.port)

    def listener_name(self, caller: Caller) -> str:
        """Return the name of the listener that received the request of `caller`; empty within this process."""
        index = self._index.get(caller.listener)
        return "" if index is None else self.names[index]

    def is_from_broker(self, caller: Caller, broker: BrokerRegistration | None = None) -> bool:
        """Return True if the caller may be another broker, by its listener, or is this broker.

        `broker`: the one that it claims to be, which connects by the listener that is named for brokers in its own
        configuration.
        """
        if caller.origin is Origin.BROKER:
            return True
        index = self._index.get(caller.listener)
        if index is None or self.inter_broker is None:
            return False
        if index == self.inter_broker:
            return True
        return broker is not None and self.names[index] == _name_at(broker, broker.inter_broker)

    def nodes_with_own(self, live: Mapping[int, BrokerRegistration], caller: Caller) -> list[BrokerNode]:
        """Return `nodes`, and this broker even while it is not registered.

        All sessions can expire at once. A client that then gets an empty list forgets every broker: librdkafka 2.16
        with metadata.recovery.strategy=none never finds one again.
        """
        if self._node_id not in live:
            own = BrokerRegistration(broker_id=self._node_id, endpoints=self.registered(), rack=self._rack)
            live = {**live, self._node_id: own}
        return self.nodes(live, caller)

    def nodes(self, live: Mapping[int, BrokerRegistration], caller: Caller) -> list[BrokerNode]:
        """Return the live brokers at their addresses for `caller`, without those that cannot be reached."""
        found = []
        for broker in live.values():
            address = self._address_of(broker, caller)
            if address is not None:
                host, port = address
                found.append(BrokerNode(node_id=broker.broker_id, host=host, port=port, rack=broker.rack))
        return found

    def _address_of(self, broker: BrokerRegistration, caller: Caller) -> Address | None:
        if broker.broker_id == self._node_id:
            return self.own_address(caller)
        index = self._index.get(caller.listener, 0)
        return _address_at(broker, _matching(broker, self.names, index))

    def inter_broker_address(self, broker: BrokerRegistration) -> Address | None:
        """Return the address where this broker reaches another one: that of the listener with the name of its own for
        brokers, or else of the one that the other has for them; None if the registration has none, or an unknown
        protocol."""
        index = None if self.inter_broker is None else _matching(broker, self.names, self.inter_broker)
        if index is None or not broker.listener_names:
            index = broker.inter_broker
        return _address_at(broker, index)


def _matching(broker: BrokerRegistration, names: Sequence[str], index: int) -> int | None:
    """Return the index of a broker's endpoint that belongs to the listener at `index` of `names`; None without one.

    Of several listeners with the same name, the first ones belong together, and so on.
    """
    others = broker.listener_names
    if not others or index >= len(names):
        return index
    before = names[:index].count(names[index])
    same = [each for each, name in enumerate(others) if name == names[index]]
    return same[before] if before < len(same) else None


def _name_at(broker: BrokerRegistration, index: int) -> str | None:
    return broker.listener_names[index] if 0 <= index < len(broker.listener_names) else None


def _address_at(broker: BrokerRegistration, index: int | None) -> Address | None:
    if index is None or not 0 <= index < len(broker.endpoints):
        return None
    try:
        listener = parse_listener(broker.endpoints[index], f"broker {broker.broker_id}")
    except ConfigError:
        return None  # a registration of a newer broker, whose protocol we do not know
    return (listener.host, listener.port)


def _is_loopback(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
