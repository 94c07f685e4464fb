"""Where the current generation keeps its state in the coordination tree, and how each node is written.

All nodes are JSON objects with a `version` of their format. Reading a node that does not hold what it should raises
`ValueError`: another program wrote it.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence

from .topics import BrokerRegistration, PartitionState, Topic, check_topic_name

FORMAT = 1
CLUSTER_ID = "/barnabas/cluster/id"
TOPICS = "/barnabas/topics"
BROKER_IDS = "/barnabas/brokers/ids"
BROKER_NUMBERS = "/barnabas/brokers/seqid"
"""Its version counts the numbers of brokers that were generated."""
CONTROLLER = "/barnabas/controller"
"""Ephemeral: the one broker that changes topics and configs."""
PARTITIONS = "/barnabas/partitions"
PRODUCER_IDS = "/barnabas/producer_ids"
"""The block of producer ids that was given out last."""
BROKER_CONFIGS = "/barnabas/config/brokers"
ALL_BROKERS = "<default>"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def topic_config_path(topic: str) -> str:
    return f"/barnabas/config/topics/{topic}"


def broker_config_path(broker_id: int | None) -> str:
    """None = the default of all brokers."""
    return f"{BROKER_CONFIGS}/{ALL_BROKERS if broker_id is None else broker_id}"


def partitions_path(topic: str) -> str:
    return f"{PARTITIONS}/{topic}"


def state_path(topic: str, partition: int) -> str:
    return f"{PARTITIONS}/{topic}/{partition}/state"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def encode_id(identifier: bytes) -> str:
    """16 bytes as 22 characters of url-safe base64 (Kafka's way to write a uuid)."""
    return urlsafe_b64encode(identifier).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    """Undo `encode_id`. Raises `ValueError`."""
    identifier = urlsafe_b64decode(f"{text}==")
    if len(identifier) != 16 or encode_id(identifier) != text:
        raise ValueError(f"{text!r} is not a 16-byte identifier")
    return identifier


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    cluster_id = _text(_load(data), "id")
    decode_id(cluster_id)
    return cluster_id


def encode_topic(topic: Topic, *, deleting: bool = False) -> bytes:
    """The topic without its configs, which have a node of their own; `deleting` marks it as going."""
    partitions = {str(partition): list(replicas) for partition, replicas in topic.partitions.items()}
    node: dict[str, object] = {"topic_id": encode_id(topic.topic_id), "partitions": partitions}
    if deleting:
        node["deleting"] = True
    return _dump(node)


def decode_topic(name: str, data: bytes, configs: Mapping[str, str]) -> tuple[Topic, bool]:
    """The topic, and whether it is being deleted."""
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
    return Topic(name=name, topic_id=topic_id, partitions=partitions, configs=configs), node.get("deleting") is True


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


def encode_state(state: PartitionState) -> bytes:
    return _dump(
        {
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "controller_epoch": state.controller_epoch,
            "isr": list(state.isr),
        }
    )


def decode_state(data: bytes, version: int) -> PartitionState:
    node = _load(data)
    state = PartitionState(
        leader=_integer(node, "leader"),
        leader_epoch=_integer(node, "leader_epoch"),
        controller_epoch=_integer(node, "controller_epoch"),
        isr=_integers(node, "isr"),
        version=version,
    )
    if state.leader_epoch < 0 or state.leader < -1:
        raise ValueError(f"leader {state.leader} with epoch {state.leader_epoch}")
    return state


def encode_broker(broker: BrokerRegistration) -> bytes:
    return _dump({"endpoints": list(broker.endpoints), "rack": broker.rack, "started_ms": broker.started_ms})


def decode_broker(name: str, data: bytes) -> BrokerRegistration:
    node = _load(data)
    endpoints, rack = node.get("endpoints"), node.get("rack")
    if not isinstance(endpoints, list) or not all(isinstance(endpoint, str) for endpoint in endpoints):
        raise ValueError("'endpoints' is not a list of texts")
    if not isinstance(rack, str | None):
        raise ValueError("'rack' is not a text")
    started_ms = _integer(node, "started_ms")
    if not (name.isascii() and name.isdecimal()):
        raise ValueError(f"{name!r} is not a broker id")
    return BrokerRegistration(broker_id=int(name), endpoints=tuple(endpoints), rack=rack, started_ms=started_ms)


def encode_controller(broker_id: int) -> bytes:
    return _dump({"broker_id": broker_id})


def decode_controller(data: bytes) -> int:
    return _integer(_load(data), "broker_id")


def encode_producer_ids(broker_id: int, block: range) -> bytes:
    return _dump({"broker_id": broker_id, "block_start": block.start, "block_end": block.stop - 1})


def decode_producer_ids(data: bytes) -> range:
    node = _load(data)
    start, end = _integer(node, "block_start"), _integer(node, "block_end")
    if not 0 <= start <= end:
        raise ValueError(f"a block from {start} to {end}")
    return range(start, end + 1)


def _dump(node: Mapping[str, object]) -> bytes:
    return json.dumps({"version": FORMAT, **node}, separators=(",", ":")).encode()


def _load(data: bytes) -> dict[str, object]:
    try:
        node = json.loads(data.decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(node, dict):
        raise ValueError("it is not a JSON object")
    if node.get("version") != FORMAT:
        raise ValueError(f"its format version is {node.get('version')!r}, not {FORMAT}")
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
