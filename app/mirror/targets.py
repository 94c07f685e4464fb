"""Where to copy to: a classic or a current cluster."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from ...core.message.classic.reader import ShallowMessage
from ...core.message.message import Message
from ...ports.errors import ConfigError
from ..clients.classic.producer import ClassicProducer
from ..clients.producer import Producer
from .taken import MirrorTarget, Taken

_CLASSIC_KEYS = ("zk.connect", "etcd.connect", "broker.list", "coordination")


def is_classic_target(config: Mapping[str, Any]) -> bool:
    """True if the producer's configuration names a classic cluster. Raises `ConfigError` when it names none, or two."""
    dotted = {str(key).replace("_", ".") for key, value in config.items() if value}
    classic = [key for key in _CLASSIC_KEYS if key in dotted]
    if classic and "bootstrap.servers" in dotted:
        raise ConfigError(f"the producer configuration has {classic[0]} (classic) and bootstrap.servers; take one")
    if not classic and "bootstrap.servers" not in dotted:
        raise ConfigError(
            "the producer configuration needs zk.connect, etcd.connect or broker.list (classic), or bootstrap.servers"
        )
    return bool(classic)


def check_counted(sources: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> None:
    """Raises `ConfigError` where messages cannot be counted."""
    if is_classic_target(target) or not all("bootstrap.servers" in _dotted(config) for config in sources):
        raise ConfigError("counting what is copied needs bootstrap.servers (the current generation) at both ends")


def bootstrap_of(config: Mapping[str, Any]) -> str:
    """Of a configuration for a current cluster."""
    return str(_dotted(config)["bootstrap.servers"])


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).replace("_", "."): value for key, value in config.items()}


def make_target(config: Mapping[str, Any]) -> MirrorTarget:
    """From a producer's configuration. Raises `ConfigError`, `BarnabasError`."""
    dotted = _dotted(config)
    return ClassicTarget(dotted) if is_classic_target(config) else CurrentTarget(dotted)


class ClassicTarget:
    """Keys, headers and timestamps end here: the classic format has none. A null value cannot be copied."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = {key: value for key, value in config.items() if key not in ("coordination", "producer.type")}
        self._producer = ClassicProducer(coordination=config.get("coordination"), config=settings)

    def deliver(self, batch: list[Taken], reports: Sequence[Message] = ()) -> None:  # noqa: ARG002  # none come here
        for topic, group in groupby(batch, attrgetter("topic")):
            self._producer.send_many(topic, [_classic(taken.message) for taken in group])
        self._producer.confirm()

    def close(self) -> None:
        self._producer.close()


def _classic(message: Message | ShallowMessage) -> Any:
    return message if isinstance(message, ShallowMessage) else message.value


class CurrentTarget:
    """Keys, headers and timestamps stay; the partitioner chooses the partition."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = {key: value for key, value in config.items() if key not in ("bootstrap.servers", "producer.type")}
        self._producer = Producer(config["bootstrap.servers"], config={"acks": "all", **settings})

    def deliver(self, batch: list[Taken], reports: Sequence[Message] = ()) -> None:
        self._send([(taken.topic, current_message(taken.message)) for taken in batch])
        self._send([(report.topic, current_message(report)) for report in reports])

    def _send(self, messages: list[tuple[str, Message]]) -> None:
        handles = [
            self._producer.send_many(topic, [message for _, message in group])
            for topic, group in groupby(messages, itemgetter(0))
        ]
        if handles:
            self._producer.flush()
        for handle in handles:
            handle.result()

    def close(self) -> None:
        self._producer.close()


def current_message(message: Message | ShallowMessage) -> Message:
    """As a current cluster takes it."""
    assert isinstance(message, Message), "sources give no wrappers to a current target"
    return Message(message.value, message.key, message.headers, message.timestamp_ms)
