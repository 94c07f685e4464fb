"""The cluster's id, its live brokers, and the configs of brokers, as the coordination tree has them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from attrs import evolve

from ...ports.coordination import BadVersion, Coordination, CoordinationError, CreateNode, Node, NodeExists, NoNode
from ...ports.entropy import Entropy
from . import layout
from .topics import BrokerRegistration, LastRegistration, ReplicaId


def cluster_id(
    coordination: Coordination, entropy: Entropy, known: str | None = None, levels: Mapping[str, int] | None = None
) -> str:
    """Return the id of the cluster: made by the first broker that asks, unless it has a `known` one. With the id it
    finalizes the `levels` of features of a new cluster. Raises `CoordinationError`."""
    while True:
        found = stored_cluster_id(coordination)
        if found is not None:
            return found
        made = known or layout.encode_id(random_uuid(entropy))
        changes = [CreateNode(layout.CLUSTER_ID, layout.encode_cluster_id(made, has_features=bool(levels)))]
        if coordination.get_many([layout.FEATURES]) == [None]:
            changes.append(CreateNode(layout.FEATURES, layout.encode_features(levels or {})))
        try:
            coordination.commit(changes)
        except NodeExists:
            continue
        return made


def stored_cluster_id(coordination: Coordination) -> str | None:
    """Return the cluster id in the tree; None before a broker has created it. Raises `CoordinationError`."""
    try:
        return layout.decode_cluster_id(coordination.get(layout.CLUSTER_ID).data)
    except NoNode:
        return None
    except ValueError as error:
        raise CoordinationError(f"{layout.CLUSTER_ID} does not hold a cluster id: {error}") from error


def random_uuid(entropy: Entropy) -> bytes:
    """Return a random (version 4) UUID, which is never zero."""
    token = bytearray(entropy.token(16))
    token[6] = token[6] & 0x0F | 0x40
    token[8] = token[8] & 0x3F | 0x80
    return bytes(token)


def next_broker_id(coordination: Coordination, reserved_max: int) -> int:
    """Return a new broker id above `reserved_max`, which no broker of the cluster had before (as Kafka with ZooKeeper).

    Raises `CoordinationError`.
    """
    return reserved_max + count_up(coordination, layout.BROKER_NUMBERS)


def next_broker_epoch(coordination: Coordination) -> int:
    """Return a broker epoch larger than all before. Raises `CoordinationError`."""
    return count_up(coordination, layout.BROKER_EPOCHS)


def raise_broker_epoch(coordination: Coordination, floor: int) -> int:
    """Count broker epochs up to one that is larger than `floor`. Raises `CoordinationError`."""
    while (epoch := next_broker_epoch(coordination)) <= floor:
        continue
    return epoch


def last_registrations(coordination: Coordination, brokers: Sequence[int]) -> dict[int, LastRegistration]:
    """Return what the tree says of the last registrations of these brokers, where it says something.

    Raises `CoordinationError`.
    """
    nodes = coordination.get_many([layout.last_registration_path(each) for each in brokers])
    found = {}
    for broker, node in zip(brokers, nodes, strict=True):
        with suppress(ValueError):  # another program has written it: it says nothing
            if node is not None:
                found[broker] = layout.decode_last_registration(broker, node.data)
    return found


def store_last_registration(coordination: Coordination, last: LastRegistration) -> None:
    """Let the tree say this of a broker, unless it says something later. Raises `CoordinationError`.

    A write of a process that was killed, which comes late, changes nothing: it asks for an earlier version.
    """
    path, data = layout.last_registration_path(last.broker_id), layout.encode_last_registration(last)
    while True:
        try:
            node = coordination.get(path)
        except NoNode:
            with suppress(NodeExists):
                coordination.create(path, data)
                return
            continue
        with suppress(ValueError):
            if layout.decode_last_registration(last.broker_id, node.data).progress >= last.progress:
                return
        with suppress(BadVersion, NoNode):
            coordination.set(path, data, version=node.version)
            return


def is_registered(coordination: Coordination, broker_id: int) -> bool:
    """Return True if the broker is alive, by the tree as of now. Raises `CoordinationError`."""
    coordination.heartbeat()  # what is read from now on is not older than now
    with suppress(NoNode):
        coordination.get(layout.broker_path(broker_id))
        return True
    return False


def remove_broker(coordination: Coordination, broker_id: int) -> bool:
    """Remove the configs of a broker, and mark its last registration as removed. False: the tree does not know it, or
    it was removed before.

    Raises `CoordinationError`.
    """
    is_known = _mark_removed(coordination, broker_id)
    try:
        coordination.delete(layout.broker_config_path(broker_id))
    except NoNode:
        return is_known
    return True


def _mark_removed(coordination: Coordination, broker_id: int) -> bool:
    """Mark the last registration as removed; False: there is none, or it is marked."""
    path = layout.last_registration_path(broker_id)
    while True:
        try:
            node = coordination.get(path)
            last = layout.decode_last_registration(broker_id, node.data)
            if last.removed:
                return False
            marked = layout.encode_last_registration(evolve(last, removed=True))
            coordination.set(path, marked, version=node.version)
        except BadVersion:
            continue
        except (NoNode, ValueError):
            return False
        return True


def count_up(coordination: Coordination, path: str) -> int:
    """Increase the counter that the version of a node is, and return it; 1 is the first."""
    while True:
        try:
            return coordination.set(path, b"")
        except NoNode:
            pass
        try:
            coordination.create(path)
        except NodeExists:
            continue


def stored_controller(coordination: Coordination, report: Callable[[str], None]) -> ReplicaId | None:
    """Return the controller in the tree; None: there is none. An unreadable node is reported."""
    try:
        return layout.decode_controller(coordination.get(layout.CONTROLLER).data)
    except NoNode:
        return None
    except ValueError as error:
        report(f"{layout.CONTROLLER} does not name a broker: {error}")
        return None


def is_earlier_controller(node: Node, own: ReplicaId) -> bool:
    """Return True if the controller node names an earlier registration of this broker."""
    try:
        stored = layout.decode_controller(node.data)
    except ValueError:
        return False
    return stored.broker_id == own.broker_id and stored.broker_epoch < own.broker_epoch


def end_earlier_controller(coordination: Coordination, own: ReplicaId) -> None:
    """Delete a controller node of an earlier registration of this broker, even one of the present session."""
    with suppress(NoNode, BadVersion):
        node = coordination.get(layout.CONTROLLER)
        if is_earlier_controller(node, own):
            coordination.delete(layout.CONTROLLER, version=node.version)


def live_brokers(coordination: Coordination, report: Callable[[str], None]) -> list[BrokerRegistration]:
    """Return the registered brokers, by id. An unreadable node is reported and skipped."""
    found = []
    paths = [f"{layout.BROKER_IDS}/{name}" for name in children(coordination, layout.BROKER_IDS)]
    for path, node in zip(paths, coordination.get_many(paths), strict=True):
        if node is None:
            continue
        try:
            found.append(layout.decode_broker(path.rpartition("/")[2], node.data))
        except ValueError as error:
            report(f"skipped {path}, which does not describe a broker: {error}")
    return sorted(found, key=lambda broker: broker.broker_id)


def broker_configs(coordination: Coordination, broker_id: int | None, report: Callable[[str], None]) -> dict[str, str]:
    """Return the dynamic configs of a broker, or with None of all brokers."""
    return read_configs(coordination, layout.broker_config_path(broker_id), report)


def set_broker_configs(coordination: Coordination, broker_id: int | None, configs: Mapping[str, str]) -> None:
    """Replace the configs that `broker_configs` returns."""
    put(coordination, layout.broker_config_path(broker_id), layout.encode_configs(configs))


def change_broker_configs(
    coordination: Coordination, broker_id: int | None, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Replace the configs that `broker_configs` returns, if they are what they were `before`.

    Raises `BadVersion` if another broker has changed them, whose change would be undone.
    """
    path, data = layout.broker_config_path(broker_id), layout.encode_configs(after)
    (node,) = coordination.get_many([path])
    if configs_in(node, path, lambda _: None) != before:
        raise BadVersion(f"another broker has changed {path}")
    if node is not None:
        coordination.set(path, data, version=node.version)
        return
    try:
        coordination.create(path, data)
    except NodeExists as error:
        raise BadVersion(f"another broker has created {path}") from error


def read_configs(coordination: Coordination, path: str, report: Callable[[str], None]) -> dict[str, str]:
    """Return the configs in a node; none when it is missing, or unreadable, which is reported."""
    try:
        return configs_in(coordination.get(path), path, report)
    except NoNode:
        return {}


def configs_in(node: Node | None, path: str, report: Callable[[str], None]) -> dict[str, str]:
    """Return the configs in a node that was read; none as for `read_configs`."""
    try:
        return layout.decode_configs(node.data) if node is not None else {}
    except ValueError as error:
        report(f"ignored {path}, which does not hold configs: {error}")
        return {}


def children(coordination: Coordination, path: str) -> list[str]:
    """Return the children of a node; none when it is missing."""
    try:
        return coordination.children(path)
    except NoNode:
        return []


def put(coordination: Coordination, path: str, data: bytes) -> None:
    """Set the data of a node, which need not exist."""
    while True:
        try:
            coordination.set(path, data)
            return
        except NoNode:
            pass
        try:
            coordination.create(path, data)
            return
        except NodeExists:
            continue


def remove(coordination: Coordination, path: str) -> None:
    """Delete a node, which need not exist."""
    try:
        coordination.delete(path)
    except NoNode:
        return
