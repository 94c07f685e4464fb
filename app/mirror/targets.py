"""The targets of a mirror: a classic or a current cluster."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from ...core.message.classic.reader import ShallowMessage
from ...core.message.message import Message
from ...ports.errors import BarnabasError, ConfigError
from ..clients.classic.producer import ClassicProducer
from ..clients.producer.producer import Producer
from ..clients.shared.connect import secured
from ..clients.shared.delivery import ManyHandle
from .layout import AS_LAID_OUT, PlacingSender
from .taken import MirrorTarget, Taken, TopicMaker, dotted

_CLASSIC_KEYS = ("zk.connect", "etcd.connect", "broker.list", "coordination")


def is_classic_target(config: Mapping[str, Any]) -> bool:
    """True if the producer's configuration names a classic cluster. Raises `ConfigError` when it names none, or two."""
    given = {key for key, value in dotted(config).items() if value}
    classic = [key for key in _CLASSIC_KEYS if key in given]
    if classic and "bootstrap.servers" in given:
        raise ConfigError(f"the producer configuration has {classic[0]} (classic) and bootstrap.servers; take one")
    if not classic and "bootstrap.servers" not in given:
        raise ConfigError(
            "the producer configuration needs zk.connect, etcd.connect or broker.list (classic), or bootstrap.servers"
        )
    return bool(classic)


def check_counted(sources: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> None:
    """Raises `ConfigError` where messages cannot be counted."""
    if is_classic_target(target) or not all("bootstrap.servers" in dotted(config) for config in sources):
        raise ConfigError("counting what is copied needs bootstrap.servers (the current generation) at both ends")


def bootstrap_of(config: Mapping[str, Any]) -> object:
    """Return the bootstrap servers in a configuration for a current cluster."""
    return secured(str(dotted(config)["bootstrap.servers"]), config)


def make_target(config: Mapping[str, Any], *, by_number: bool, laid_out: bool) -> MirrorTarget:
    """Make a target of a producer's configuration; `laid_out`: layouts make its topics. Raises `ConfigError`,
    `BarnabasError`."""
    settings = dotted(config)
    if is_classic_target(config):
        return ClassicTarget(settings)
    return CurrentTarget(settings | AS_LAID_OUT if laid_out else settings, by_number=by_number)


class ClassicTarget:
    """Keys, headers and timestamps end here: the classic format has none. A null value cannot be copied."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = {key: value for key, value in config.items() if key not in ("coordination", "producer.type")}
        self._producer = ClassicProducer(coordination=config.get("coordination"), config=settings)

    def deliver(
        self,
        batch: list[Taken],
        reports: Sequence[Message] = (),  # noqa: ARG002  # none come here
        layout: TopicMaker | None = None,  # noqa: ARG002  # brokers make topics by themselves
    ) -> None:
        for topic, group in groupby(batch, attrgetter("topic")):
            self._producer.send_many(topic, [_classic(taken.message) for taken in group])
        self._producer.confirm()

    def close(self) -> None:
        self._producer.close()


def _classic(message: Message | ShallowMessage) -> Any:
    return message if isinstance(message, ShallowMessage) else message.value


class CurrentTarget:
    """Keys, headers and timestamps stay; so do the numbers of partitions, or the partitioner chooses."""

    def __init__(self, config: Mapping[str, Any], *, by_number: bool) -> None:
        settings = {key: value for key, value in config.items() if key not in ("bootstrap.servers", "producer.type")}
        self._producer = Producer(config["bootstrap.servers"], config={"acks": "all", **settings})
        self._sender = PlacingSender(self._producer, by_number=by_number)

    def deliver(self, batch: list[Taken], reports: Sequence[Message] = (), layout: TopicMaker | None = None) -> None:
        try:
            self._confirm(self._sender.send(batch), layout)
            self._confirm(self._sender.report(reports), layout)
        except BarnabasError:
            self._sender.forget()
            raise

    def _confirm(self, handles: list[ManyHandle], layout: TopicMaker | None) -> None:
        if handles:
            self._sender.await_sends(layout)
        for handle in handles:
            handle.result()

    def close(self) -> None:
        self._producer.close()
