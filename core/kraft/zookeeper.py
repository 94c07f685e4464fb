"""The metadata of an Apache Kafka cluster of the ZooKeeper era, in the nodes that its brokers wrote (facts D1)."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ...ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from ...ports.broker_api.configs import ResourceKind
from ...ports.broker_api.operations import Operation
from ...ports.broker_api.quotas import CLIENT_ID, IP, USER
from ...ports.broker_api.scram import SCRAM_MECHANISMS
from ...ports.coordination import Coordination
from ...ports.values import Secret
from ..cluster.brokers import children
from ..cluster.layout import decode_id
from ..security.acl import TYPE_NAMES
from ..security.sasl.scram import ScramCredential
from .image import KraftImage, KraftPartition, KraftTopic

_DEFAULT = "<default>"
_TYPES = {name: kind for kind, name in TYPE_NAMES.items()}
_PREFIXED = "/kafka-acl-extended/PREFIXED"
_CONFIG_KINDS = {"topics": ResourceKind.TOPIC, "brokers": ResourceKind.BROKER}
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
Json = Mapping[str, Any]


def read_zookeeper(coordination: Coordination, new_id: Callable[[str], bytes]) -> KraftImage:
    """Return the state of the cluster; nodes that make no sense are counted in `skipped`.

    `new_id` returns the id of a topic from before Kafka 2.8, which has none. Raises `CoordinationError`.
    """
    reader = _Reader(coordination)
    reader.read_topics(new_id)
    reader.read_configs()
    reader.read_acls()
    block = reader.node("/latest_producer_id_block")
    if block is not None:
        reader.image.next_producer_id = int(block.get("block_end", -1)) + 1
    reader.image.tokens = set(children(coordination, "/delegation_token/tokens"))
    return reader.image


class _Reader:
    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self.image = KraftImage()

    def node(self, path: str) -> Json | None:
        """Return the object in a node; None: there is none, or it makes no sense."""
        (found,) = self._coordination.get_many([path])
        if found is None or not found.data:
            return None
        try:
            value = json.loads(found.data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self.image.skipped[f"{path}, which is no JSON object"] += 1
            return None
        return value

    def _children(self, path: str) -> Iterator[tuple[str, Json]]:
        for name in sorted(children(self._coordination, path)):
            found = self.node(f"{path}/{name}")
            if found is not None:
                yield name, found

    def read_topics(self, new_id: Callable[[str], bytes]) -> None:
        for name, found in self._children("/brokers/topics"):
            try:
                topic = self._topic(name, found, new_id)
            except (KeyError, TypeError, ValueError) as error:
                self.image.skipped[f"/brokers/topics/{name}: {error!r}"] += 1
                continue
            self.image.topics[topic.topic_id] = topic

    def _topic(self, name: str, found: Json, new_id: Callable[[str], bytes]) -> KraftTopic:
        listed = found.get("topic_id")
        topic = KraftTopic(name, new_id(name) if listed is None else decode_id(listed))
        for number, replicas in found["partitions"].items():
            state = self.node(f"/brokers/topics/{name}/partitions/{number}/state") or {}
            topic.partitions[int(number)] = KraftPartition(
                replicas=tuple(replicas),
                isr=tuple(state.get("isr", replicas)),
                leader=state.get("leader", -1),
                leader_epoch=state.get("leader_epoch", 0),
            )
        return topic

    def read_configs(self) -> None:
        for folder, kind in _CONFIG_KINDS.items():
            for name, found in self._children(f"/config/{folder}"):
                settings = found.get("config") or {}
                if settings:
                    self.image.configs[int(kind), "" if name == _DEFAULT else name] = dict(settings)
        for name, found in self._children("/config/users"):
            settings = dict(found.get("config") or {})
            for mechanism in SCRAM_MECHANISMS.values():
                if mechanism in settings:
                    self._add_user(_plain(name), mechanism, settings.pop(mechanism))
            self._add_quotas({USER: name}, settings)
        for entity_type, folder in ((CLIENT_ID, "clients"), (IP, "ips")):
            for name, found in self._children(f"/config/{folder}"):
                self._add_quotas({entity_type: name}, found.get("config") or {})
        for user in children(self._coordination, "/config/users"):
            for client, found in self._children(f"/config/users/{user}/clients"):
                self._add_quotas({USER: user, CLIENT_ID: client}, found.get("config") or {})

    def _add_user(self, user: str, mechanism: str, text: str) -> None:
        try:
            parts = dict(part.split("=", 1) for part in text.split(","))
            credential = ScramCredential(
                salt=b64decode(parts["salt"]),
                stored_key=Secret(b64decode(parts["stored_key"])),
                server_key=Secret(b64decode(parts["server_key"])),
                iterations=int(parts["iterations"]),
            )
        except (KeyError, ValueError):
            self.image.skipped[f"the {mechanism} credential of {user}"] += 1
            return
        self.image.users.setdefault(user, {})[mechanism] = credential

    def _add_quotas(self, entity: Mapping[str, str], limits: Json) -> None:
        names = {kind: None if name == _DEFAULT else _plain(name) for kind, name in entity.items()}
        for key, value in limits.items():
            try:
                self.image.quotas.setdefault(tuple(sorted(names.items())), {})[key] = float(value)
            except ValueError:
                self.image.skipped[f"quota {key} of {names}"] += 1

    def read_acls(self) -> None:
        for above, pattern in (("/kafka-acl", PatternType.LITERAL), (_PREFIXED, PatternType.PREFIXED)):
            for type_name in children(self._coordination, above):
                for resource, found in self._children(f"{above}/{type_name}"):
                    for row in found.get("acls", ()):
                        self._add_acl(type_name, resource, pattern, row)

    def _add_acl(self, type_name: str, resource: str, pattern: PatternType, row: Json) -> None:
        try:
            acl = AclBinding(
                resource_type=ResourceType(_TYPES[type_name]),
                resource_name=resource,
                pattern_type=pattern,
                principal=row["principal"],
                host=row["host"],
                operation=Operation[_upper(row["operation"])],
                permission=PermissionType[_upper(row["permissionType"])],
            )
        except (KeyError, TypeError) as error:
            self.image.skipped[f"an ACL of {type_name} {resource}: {error!r}"] += 1
            return
        self.image.acls[len(self.image.acls).to_bytes(16, "big")] = acl


def _upper(name: str) -> str:
    """Return `DescribeConfigs` as `DESCRIBE_CONFIGS`."""
    return _CAPITAL.sub("_", name).upper()


def _plain(name: str) -> str:
    """Undo Kafka's `Sanitizer`."""
    return unquote(name)
