"""The nodes of the current generation in the coordination tree: their paths and their encoding.

All nodes are JSON objects with a `version` of their format. Reading a node with unexpected content raises
`ValueError`: another program wrote it.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from urllib.parse import quote, unquote

from attrs import evolve

from ...ports.broker_api.features import SupportedVersionRange
from ...ports.types import TopicPartition
from .topics import (
    ALONE_EPOCH,
    NO_LEADER,
    UNKNOWN_EPOCH,
    BrokerRegistration,
    LastRegistration,
    LogClaim,
    PartitionState,
    ReplicaId,
    Topic,
    check_topic_name,
)

FORMAT = 1
_NO_MIN_ISR = -1
FEATURES_FORMAT = 2
"""The format of the cluster id's node while a level of a feature is finalized: Barnabas 0.2 refuses to read it."""
CLUSTER_ID = "/barnabas/cluster/id"
FEATURES = "/barnabas/features"
"""The finalized levels of features; an earlier version made no such node."""
TOPICS = "/barnabas/topics"
BROKER_IDS = "/barnabas/brokers/ids"
BROKER_NUMBERS = "/barnabas/brokers/seqid"
"""The version of this node counts the generated broker ids."""
BROKER_EPOCHS = "/barnabas/brokers/epoch"
"""The version of this node counts the registrations of brokers."""
LAST_REGISTRATIONS = "/barnabas/brokers/last"
"""Below it, by broker id, the last registration of each broker: a tree that has an earlier one was restored."""
CONTROLLER = "/barnabas/controller"
"""Ephemeral: the broker that elects leaders."""
CONTROLLER_EPOCH = "/barnabas/controller_epoch"
"""The version of this node is the controller epoch, which guards the controller's writes."""
STATES = "/barnabas/states"
"""Below it, by topic id and number, the nodes with the states of partitions."""
PARTITIONS_PER_NODE = 500
"""The number of partitions with their states in one node. Part of the format: 0 to 499 are in the node 0."""
OLD_STATES = "/barnabas/partitions"
"""The path of partition states in earlier versions, by the topic's name."""
DELETED = "/barnabas/deleted"
"""Below it, by id, the topics that are deleted, with the brokers that may still have logs of them."""
DELETED_REMOTE = "/barnabas/deleted_remote"
"""Below it, by id, the topics that are deleted, and of which remote storage may still have objects."""
PRODUCER_IDS = "/barnabas/producer_ids"
"""The block of producer ids that was given out last."""
TOPIC_CONFIGS = "/barnabas/config/topics"
BROKER_CONFIGS = "/barnabas/config/brokers"
GROUP_CONFIGS = "/barnabas/config/groups"
ALL_BROKERS = "<default>"
SECURITY = "/barnabas/security"


class EntityKind(Enum):
    """A kind of entity, which is one node; of all kinds but one they are below `SECURITY`, in a folder of this name."""

    ACLS = "acls"
    """The access control entries of a resource pattern."""
    USERS = "users"
    """The SCRAM credentials of a user."""
    QUOTAS = "quotas"
    """The client quotas of an entity."""
    TOKENS = "tokens"
    """A delegation token."""
    KEYS = "keys"
    """A random key that all brokers share."""
    GROUP_CONFIGS = "group configs"
    """The settings of a single group. They are no secret, so they are in `GROUP_CONFIGS`."""


def entity_folder(kind: EntityKind) -> str:
    """Return the path above the entities of a kind."""
    if kind is EntityKind.GROUP_CONFIGS:
        return GROUP_CONFIGS
    return f"{SECURITY}/{kind.value}"


def entity_path(kind: EntityKind, name: str) -> str:
    """Return the path of an entity. Raises `ValueError` for an empty name."""
    return f"{entity_folder(kind)}/{encode_name(name)}"


def encode_name(name: str) -> str:
    """Return any name as a part of a path: percent-encoded, also where it is `.` or `..`. Raises `ValueError`."""
    if not name:
        raise ValueError("the name is empty")
    encoded = quote(name, safe=":=,", errors="surrogatepass")
    return encoded.replace(".", "%2E") if encoded.strip(".") == "" else encoded


def decode_name(part: str) -> str:
    """Undo `encode_name`. Raises `ValueError`."""
    name = unquote(part, errors="surrogatepass")
    if encode_name(name) != part:
        raise ValueError(f"{part!r} is not the encoding of a name")
    return name


def encode_entity(value: Mapping[str, object]) -> bytes:
    """Return the node of an entity: its value, with the version of the format."""
    return _dump(value)


def decode_entity(data: bytes) -> dict[str, object]:
    """Return the value of an entity. Raises `ValueError`."""
    node = _load(data)
    del node["version"]
    return node


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker_id: int | None) -> str:
    """Return the path of a broker's configs; None = the default of all brokers."""
    return f"{BROKER_CONFIGS}/{ALL_BROKERS if broker_id is None else broker_id}"


def states_path(topic_id: bytes, node: int = 0) -> str:
    """Return the path of a node with states of a topic's partitions. No two topics share one, whatever their names."""
    return f"{STATES}/{encode_id(topic_id)}.{node}"


def decode_states_name(name: str) -> tuple[bytes, int]:
    """Return the topic id and the number in the last part of a `states_path`. Raises `ValueError`."""
    identifier, _, number = name.partition(".")
    if not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{name!r} does not name states of a topic")
    return decode_id(identifier), int(number)


def states_node(partition: int) -> int:
    """Return the number of the node with the state of a partition."""
    return partition // PARTITIONS_PER_NODE


def partitions_of_node(node: int) -> range:
    """Return the numbers of the partitions whose states are in a node."""
    return range(node * PARTITIONS_PER_NODE, (node + 1) * PARTITIONS_PER_NODE)


def states_nodes(partitions: int) -> range:
    """Return the numbers of the nodes with the states of this number of partitions."""
    return range(states_node(partitions - 1) + 1)


def old_states_path(topic: str) -> str:
    """Return the path where an earlier version stored the states of all partitions of the topic of this name."""
    return f"{OLD_STATES}/{topic}"


def old_state_path(topic: str, partition: int) -> str:
    """Return the path where a still earlier version stored the state of a single partition."""
    return f"{OLD_STATES}/{topic}/{partition}/state"


def deleted_path(topic_id: bytes) -> str:
    return f"{DELETED}/{encode_id(topic_id)}"


def deleted_remote_path(topic_id: bytes) -> str:
    return f"{DELETED_REMOTE}/{encode_id(topic_id)}"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def last_registration_path(broker_id: int) -> str:
    return f"{LAST_REGISTRATIONS}/{broker_id}"


def encode_id(identifier: bytes) -> str:
    """16 bytes as 22 characters of url-safe base64 (Kafka's way to write a uuid)."""
    return urlsafe_b64encode(identifier).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    """Undo `encode_id`. Raises `ValueError`."""
    identifier = urlsafe_b64decode(f"{text}==")
    if len(identifier) != 16 or encode_id(identifier) != text:
        raise ValueError(f"{text!r} is not a 16-byte identifier")
    return identifier


def encode_cluster_id(cluster_id: str, *, has_features: bool = False) -> bytes:
    return _dump({"id": cluster_id}, FEATURES_FORMAT if has_features else FORMAT)


def decode_cluster_id(data: bytes) -> str:
    cluster_id = _text(_load(data, (FORMAT, FEATURES_FORMAT)), "id")
    decode_id(cluster_id)
    return cluster_id


def encode_features(levels: Mapping[str, int]) -> bytes:
    return _dump({"features": dict(sorted(levels.items()))})


def decode_features(data: bytes) -> dict[str, int]:
    """Return the level of each feature that is not at 0. Raises `ValueError`."""
    levels = _load(data).get("features")
    if not isinstance(levels, dict):
        raise ValueError("'features' is not an object")
    found = {name: _whole(level) for name, level in levels.items()}
    if any(level < 0 for level in found.values()):
        raise ValueError("a level is less than 0")
    return {name: level for name, level in found.items() if level}


def encode_topic(topic: Topic, *, deleting: bool = False) -> bytes:
    """Encode a topic without its configs, which have a node of their own; `deleting` marks it as being deleted."""
    partitions = _by_number(topic.partitions)
    node: dict[str, object] = {"topic_id": encode_id(topic.topic_id), "partitions": partitions}
    for key, moving in (("adding_replicas", topic.adding), ("removing_replicas", topic.removing)):
        if moving:
            node[key] = _by_number(moving)
    if topic.former:
        node["former_replicas"] = list(topic.former)
    if deleting:
        node["deleting"] = True
    return _dump(node)


def _by_number(brokers: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    """In one order, so that equal topics are equal bytes."""
    return {str(number): list(brokers[number]) for number in sorted(brokers)}


def decode_topic(name: str, data: bytes, configs: Mapping[str, str]) -> tuple[Topic, bool]:
    """Decode a topic; return it, and whether it is being deleted."""
    check_topic_name(name)
    node = _load(data)
    topic_id = decode_id(_text(node, "topic_id"))
    listed = node.get("partitions")
    if not isinstance(listed, dict) or not listed:
        raise ValueError("'partitions' is not an object with entries")
    partitions = {}
    for partition in range(len(listed)):
        replicas = _integers(listed, str(partition))
        if not replicas or len(set(replicas)) != len(replicas):
            raise ValueError(f"the replicas of partition {partition} are {replicas}")
        partitions[partition] = replicas
    if not any(topic_id):
        raise ValueError("'topic_id' is zero")
    topic = Topic(
        name=name,
        topic_id=topic_id,
        partitions=partitions,
        configs=configs,
        adding=_moving(node, "adding_replicas", partitions),
        removing=_moving(node, "removing_replicas", partitions),
        former=_integers(node, "former_replicas") if "former_replicas" in node else (),
    )
    return topic, node.get("deleting") is True


def _moving(
    node: Mapping[str, object], key: str, partitions: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    listed = node.get(key, {})
    if not isinstance(listed, dict):
        raise ValueError(f"{key!r} is not an object")
    return {number: _integers(listed, str(number)) for number in partitions if str(number) in listed}


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return _dump({"config": dict(sorted(configs.items()))})


def decode_configs(data: bytes) -> dict[str, str]:
    configs = _load(data).get("config")
    if not isinstance(configs, dict):
        raise ValueError("'config' is not an object")
    for key, value in configs.items():
        if not isinstance(value, str):
            raise ValueError(f"the value of {key!r} is not a text")
    return configs


def encode_states(topic_id: bytes, states: Mapping[int, PartitionState]) -> bytes:
    """For each partition a list, to be short: leader, leader epoch, partition epoch; then ISR, ELR and suspects as
    pairs of broker and broker epoch, and claims as four numbers each, with a fifth, 1, if the log is lost; empty ones
    at the end are left out. `min_isr` is that of all partitions, but for those that end with another; -1 for none."""
    known = Counter(state.min_isr for state in states.values() if state.min_isr is not None)
    common = max(known, key=lambda value: (known[value], value), default=None)
    node: dict[str, object] = {"topic_id": encode_id(topic_id)}
    if common is not None:
        node["min_isr"] = common
    node["states"] = {str(number): _state_list(states[number], common) for number in sorted(states)}
    replicas = {str(number): states[number].replicas for number in sorted(states) if states[number].replicas}
    if replicas:
        node["replicas"] = replicas  # apart from the lists, which earlier versions refuse if they are longer
    return _dump(node)


def _state_list(state: PartitionState, common_min_isr: int | None) -> list[object]:
    def lives(members: Sequence[int]) -> list[tuple[int, int]]:
        return [(member, state.broker_epochs.get(member, UNKNOWN_EPOCH)) for member in members]

    claims = [
        (each, claim.broker_epoch, claim.last_epoch, claim.log_end, *([1] if claim.lost else []))
        for each, claim in state.claims.items()
    ]
    lists: list[Sequence[object]] = [lives(state.isr), lives(state.elr), lives(state.suspects), claims]
    if state.min_isr != common_min_isr:
        min_isr = _NO_MIN_ISR if state.min_isr is None else state.min_isr
        return [state.leader, state.leader_epoch, state.partition_epoch, *lists, min_isr]
    while len(lists) > 1 and not lists[-1]:
        lists.pop()
    return [state.leader, state.leader_epoch, state.partition_epoch, *lists]


def decode_states(data: bytes) -> tuple[bytes, dict[int, PartitionState]]:
    """Decode the states of a topic's partitions; return the topic's id and the states."""
    node = _load(data)
    states = node.get("states")
    if not isinstance(states, dict):
        raise ValueError("'states' is not an object")
    common = _min_isr_of(node.get("min_isr", _NO_MIN_ISR))
    found = {}
    for name, listed in states.items():
        if not (name.isascii() and name.isdecimal()):
            raise ValueError(f"{name!r} is not the number of a partition")
        found[int(name)] = _state_of(listed, common)
    replicas = node.get("replicas", {})
    if not isinstance(replicas, dict):
        raise ValueError("'replicas' is not an object")
    for name, brokers in replicas.items():
        if name in states and isinstance(brokers, list) and brokers:
            found[int(name)] = evolve(found[int(name)], replicas=tuple(map(_whole, brokers)))
    return decode_id(_text(node, "topic_id")), found


def _min_isr_of(value: object) -> int | None:
    number = _whole(value)
    if number != _NO_MIN_ISR and number < 1:
        raise ValueError(f"'min_isr' is {number}")
    return None if number == _NO_MIN_ISR else number


def _state_of(listed: object, common_min_isr: int | None) -> PartitionState:
    if not isinstance(listed, list) or not 4 <= len(listed) <= 8:
        raise ValueError(f"{str(listed)[:100]} is not a state")
    min_isr = _min_isr_of(listed[7]) if len(listed) == 8 else common_min_isr
    leader, leader_epoch, partition_epoch = (_whole(number) for number in listed[:3])
    rows = [_rows(part, (4, 5) if index == 3 else (2,)) for index, part in enumerate(listed[3:7])]
    rows += [[] for _ in range(4 - len(rows))]
    isr, elr, suspects, claims = rows
    if leader_epoch < 0 or leader < NO_LEADER or not isr:
        raise ValueError(f"leader {leader} with epoch {leader_epoch} and the ISR {isr}")
    members, in_sync = [*isr, *elr, *suspects], tuple([row[0] for row in isr])
    broker_epochs = {row[0]: row[1] for row in members}
    if len(broker_epochs) != len(members) or (leader != NO_LEADER and leader not in in_sync):
        raise ValueError(f"leader {leader} with the members {[row[0] for row in members]}")
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        isr=in_sync,
        elr=tuple([row[0] for row in elr]) if elr else (),
        suspects=tuple([row[0] for row in suspects]) if suspects else (),
        broker_epochs=broker_epochs,
        min_isr=min_isr,
        claims={row[0]: _claim_of(row[1:]) for row in claims},
    )


def _claim_of(numbers: Sequence[int]) -> LogClaim:
    broker_epoch, last_epoch, log_end = numbers[:3]
    return LogClaim(broker_epoch, last_epoch, log_end, lost=numbers[3:] == [1])


def _rows(part: object, widths: tuple[int, ...]) -> list[list[int]]:
    if not isinstance(part, list):
        raise ValueError(f"{str(part)[:100]} is not a list of {widths[0]} numbers each")
    for row in part:
        if not isinstance(row, list) or len(row) not in widths:
            raise ValueError(f"{str(part)[:100]} is not a list of {widths[0]} numbers each")
        for number in row:
            _whole(number)
    return part


def _whole(number: object) -> int:
    if type(number) is not int:  # a bool is none
        raise ValueError(f"{str(number)[:100]} is not a whole number")
    return number


def decode_old_state(data: bytes) -> PartitionState:
    """Decode a state that an older version wrote, in a cluster of one broker. Raises `ValueError`."""
    node = _load(data)
    isr = _integers(node, "isr")
    state = PartitionState(
        leader=_integer(node, "leader"),
        leader_epoch=_integer(node, "leader_epoch"),
        isr=isr,
        broker_epochs=dict.fromkeys(isr, ALONE_EPOCH),
    )
    if state.leader_epoch < 0 or state.leader < NO_LEADER or not isr:
        raise ValueError(f"leader {state.leader} with epoch {state.leader_epoch}")
    return state


def encode_deleted(name: str, brokers: Sequence[int]) -> bytes:
    return _dump({"topic": name, "brokers": sorted(brokers)})


def decode_deleted(data: bytes) -> tuple[str, tuple[int, ...]]:
    """Decode a deleted topic; return its name and the brokers that may still have logs of it."""
    node = _load(data)
    return _text(node, "topic"), _integers(node, "brokers")


def encode_broker(broker: BrokerRegistration) -> bytes:
    node: dict[str, object] = {
        "endpoints": list(broker.endpoints),
        "rack": broker.rack,
        "started_ms": broker.started_ms,
        "broker_epoch": broker.broker_epoch,
        "previous_epoch": broker.previous_epoch,
    }
    if broker.inter_broker:
        node["inter_broker"] = broker.inter_broker
    if broker.listener_names:
        node["listener_names"] = list(broker.listener_names)
    if broker.leaving:
        node["leaving"] = True
    if broker.cordoned:
        node["cordoned"] = True
    if broker.machine is not None:
        node["machine"] = broker.machine
    if broker.min_isr is not None:
        node["min_insync_replicas"] = broker.min_isr
    if broker.features:
        node["features"] = {
            name: [each.min_version, each.max_version] for name, each in sorted(broker.features.items())
        }
    if broker.offline:
        node["offline"] = sorted(str(key) for key in broker.offline)
    return _dump(node)


def decode_broker(name: str, data: bytes) -> BrokerRegistration:
    node = {"broker_epoch": ALONE_EPOCH, "previous_epoch": UNKNOWN_EPOCH, "inter_broker": 0, **_load(data)}
    endpoints, rack = node.get("endpoints"), node.get("rack")
    if not isinstance(endpoints, list) or not all(isinstance(endpoint, str) for endpoint in endpoints):
        raise ValueError("'endpoints' is not a list of texts")
    if not isinstance(rack, str | None):
        raise ValueError("'rack' is not a text")
    machine = node.get("machine")
    if not isinstance(machine, str | None):
        raise ValueError("'machine' is not a text")
    if not (name.isascii() and name.isdecimal()):
        raise ValueError(f"{name!r} is not a broker id")
    return BrokerRegistration(
        broker_id=int(name),
        endpoints=tuple(endpoints),
        rack=rack,
        machine=machine,
        started_ms=_integer(node, "started_ms"),
        broker_epoch=_integer(node, "broker_epoch"),
        previous_epoch=_integer(node, "previous_epoch"),
        leaving=node.get("leaving") is True,
        cordoned=node.get("cordoned") is True,
        inter_broker=_integer(node, "inter_broker"),
        listener_names=tuple(_texts(node, "listener_names")),
        min_isr=_integer(node, "min_insync_replicas") if "min_insync_replicas" in node else None,
        offline=frozenset(_partition(name) for name in _texts(node, "offline")),
        features=_feature_ranges(node.get("features", {})),
    )


def _feature_ranges(value: object) -> dict[str, SupportedVersionRange]:
    if not isinstance(value, dict):
        raise ValueError("'features' is not an object")
    return {name: SupportedVersionRange(*_rows([levels], (2,))[0]) for name, levels in value.items()}


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    if not topic or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{name!r} is not a partition")
    return TopicPartition(topic, int(number))


def _texts(node: Mapping[str, object], key: str) -> list[str]:
    value = node.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{key!r} is not a list of texts")
    return value


def encode_last_registration(last: LastRegistration) -> bytes:
    removed = {"removed": True} if last.removed else {}
    return _dump({"broker_epoch": last.broker_epoch, "ended": last.ended, **removed})


def decode_last_registration(broker_id: int, data: bytes) -> LastRegistration:
    node = _load(data)
    ended, removed = node.get("ended") is True, node.get("removed") is True
    return LastRegistration(broker_id, _integer(node, "broker_epoch"), ended, removed)


def encode_controller(controller: ReplicaId) -> bytes:
    return _dump({"broker_id": controller.broker_id, "broker_epoch": controller.broker_epoch})


def decode_controller(data: bytes) -> ReplicaId:
    node = {"broker_epoch": ALONE_EPOCH, **_load(data)}
    return ReplicaId(_integer(node, "broker_id"), _integer(node, "broker_epoch"))


def encode_producer_ids(broker_id: int, block: range) -> bytes:
    return _dump({"broker_id": broker_id, "block_start": block.start, "block_end": block.stop - 1})


def decode_producer_ids(data: bytes) -> range:
    node = _load(data)
    start, end = _integer(node, "block_start"), _integer(node, "block_end")
    if not 0 <= start <= end:
        raise ValueError(f"a block from {start} to {end}")
    return range(start, end + 1)


def _dump(node: Mapping[str, object], version: int = FORMAT) -> bytes:
    return json.dumps({"version": version, **node}, separators=(",", ":")).encode()


def _load(data: bytes, versions: Sequence[int] = (FORMAT,)) -> dict[str, object]:
    try:
        node = json.loads(data.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(node, dict):
        raise ValueError("it is not a JSON object")
    if node.get("version") not in versions:
        raise ValueError(f"its format version is {node.get('version')!r}, not {' or '.join(map(str, versions))}")
    return node


def _text(node: Mapping[str, object], key: str) -> str:
    value = node.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key!r} is not a text")
    return value


def _integer(node: Mapping[str, object], key: str) -> int:
    value = node.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{key!r} is not a whole number")
    return value


def _integers(node: Mapping[str, object], key: str) -> tuple[int, ...]:
    value = node.get(key)
    if not isinstance(value, Sequence) or not all(isinstance(x, int) and not isinstance(x, bool) for x in value):
        raise ValueError(f"{key!r} is not a list of whole numbers")
    return tuple(value)
