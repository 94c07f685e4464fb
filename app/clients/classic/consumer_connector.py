"""The high-level consumer of the classic generation, as users see it (facts A8)."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from ....core.classic.consumer.consumer import ClassicConsumer, ConsumerOutside, make_consumer_id
from ....core.classic.consumer.settings import ConnectorSettings, ConsumerRebalanceFailed
from ....core.classic.consumer.streams import decoded_value
from ....core.classic.registry.layout import BrokerPartition, check_name
from ....core.classic.registry.subscription import ClassicSubscription
from ....core.classic.registry.topic_filter import TopicFilter
from ....core.message.classic.reader import decode_set
from ....core.message.classic.writer import encode_shallow
from ....plugins.builtin.encoders import BytesSerde
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.errors import BarnabasError, ClosedError, ConfigError
from ....ports.scheduler import Outcome
from ...config.names import coordination_url
from ...config.security_settings import NO_SECURITY, SecuritySettings, is_security_key
from ..shared import typed_settings
from ..shared.blocking_shell import logger
from ..shared.connect import Plugins, plugin_host
from ..shared.encoding import as_decoder
from ..shared.process import check_process_in_methods
from ..shared.settings import read_security, read_settings
from ..shared.signature import SettingsSignature, defaults_of
from .shell import ClassicShell
from .streams import GuardedFeed, MessageStream

if TYPE_CHECKING:
    from types import TracebackType

    from ....core.classic.consumer.registry import StartOffsets
    from ....core.classic.consumer.streams import StreamMessage, StreamQueue
    from ....core.classic.rebalancer import Rebalancer
    from ....core.classic.registry.group import Owned
    from ....core.client.serde import Decoder
    from ....plugins.host import PluginHost
    from ....ports.coordination import Coordination
    from ...connector import Connector

T = TypeVar("T")
_NAMED = {"smallest": EARLIEST, "earliest": EARLIEST, "largest": LATEST, "latest": LATEST}


# The settings of a classic consumer, and where its registries are.


def read_connector_settings(
    config: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> tuple[ConnectorSettings, SecuritySettings]:
    """Read dotted names and keyword arguments, which win. Raises `ConfigError`, also for an unusable group id."""
    given = dict(given)
    config = dict(config or {})
    of_config = {key: config.pop(key) for key in [*config] if is_security_key(key)}
    of_given = {name: given.pop(name) for name in [*given] if is_security_key(name.replace("_", "."))}
    security = read_security(of_config, of_given) if of_config or of_given else NO_SECURITY
    settings = read_settings(ConnectorSettings, config, given)
    if not settings.groupid:
        raise ConfigError("groupid is missing: name the consumer group")
    check_name("groupid", settings.groupid)
    if settings.consumerid:
        check_name("consumerid", settings.consumerid)
    return settings, security


def find_registries(settings: ConnectorSettings, coordination: object) -> object:
    """Return the argument of `compose.client_coordination`. Raises `ConfigError` unless exactly one place is given."""
    places = {
        "zk.connect": coordination_url("zk.connect", settings.zk_connect),
        "etcd.connect": coordination_url("etcd.connect", settings.etcd_connect),
        "coordination": coordination,
    }
    given = {name: place for name, place in places.items() if place}
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise ConfigError(f"a consumer connector needs exactly one of {', '.join(places)}; given: {found}")
    return next(iter(given.values()))


def rebalancer_of(settings: ConnectorSettings, given: object, host: PluginHost) -> Rebalancer:
    """Return the rebalancer that was given, or the one that the settings name. Raises `ConfigError`."""
    if given is None or isinstance(given, str):
        return host.rebalancer(settings.rebalance_strategy)
    if not hasattr(given, "assign"):
        raise ConfigError(f"rebalance.strategy: {given!r:.100} has no assign, see Rebalancer")
    return cast("Rebalancer", given)


@check_process_in_methods("_shell")
class ConsumerConnector:
    """A member of a consumer group, over ZooKeeper, etcd or a `Broker` of this process.

        with ConsumerConnector("localhost:2181", groupid="readers") as connector:
            (stream,) = connector.create_message_streams({"events": 1})["events"]
            for message in stream:
                ...

    zk_connect:     "host:port[,host:port][/chroot]"; or `etcd_connect=` likewise; or `coordination=`: a URL
                    (`zookeeper://`, `etcd://`), a running `Broker`, or a callable that makes a session.
    groupid:        the group. The groups' positions are kept in the registries, per group.
    config:         settings under their names of 0.7 (`autooffset.reset`, ...); as keyword arguments with underscores.
    decoder:        name or object, for the values; default: bytes as they are.
    start_offsets:  for exactly once: `start_offsets(topic, broker_partition)` says where a partition begins that has
                    come to this consumer (None: see `autooffset.reset`), from where the application keeps offsets with
                    its results; take `autocommit_enable=False` with it. It is called in a thread of its own. The
                    owner before may still be storing the last message it got: have the store refuse results that do
                    not follow the offset that it has.
    rebalance_strategy: name or object: how the partitions of a topic are shared out (see `Rebalancer`); all members of
                    a group need the same. Default: "range", as 0.7 does.
    connector:      instead of sockets: how brokers are reached.

    Threads: every stream may have its own; the methods here are callable from any. `ConfigError` and
    `CoordinationError` come from the constructor.

    Further settings, as keyword arguments: `etcd_connect`, `client_id`, `consumerid`, `socket_timeout_ms`,
    `socket_buffersize`, `socket_connection_setup_timeout_ms`, `reconnect_backoff_ms`, `reconnect_backoff_max_ms`,
    `fetch_size`, `fetch_size_max`, `fetch_max_bytes`, `fetcher_backoff_ms`, `autocommit_enable`,
    `autocommit_interval_ms`, `autooffset_reset`, `queuedchunks_max`, `rebalance_retries_max`, `consumer_timeout_ms`,
    `shallowiterator_enable`, `check_crcs`, `zk_sessiontimeout_ms`, `zk_connectiontimeout_ms`, `zk_synctime_ms`,
    `rebalance_backoff_ms`, `mirror_topics_whitelist`, `mirror_topics_blacklist`, `mirror_consumer_numthreads`,
    `zk_suspended_stop_ms`; and those of its connections, `security_protocol`, `ssl_...`, `zookeeper_...` and
    `etcd_...`. The signature has the default of each, docs/configuration.md explains them.
    """

    __signature__ = SettingsSignature(
        typed_settings.ConnectorKeywords, lambda: defaults_of(ConnectorSettings, SecuritySettings)
    )

    def __init__(
        self,
        zk_connect: str | None = None,
        *,
        coordination: object = None,
        groupid: str | None = None,
        config: Mapping[str, Any] | None = None,
        decoder: str | Decoder | Callable[[bytes], Any] | None = None,
        start_offsets: StartOffsets | None = None,
        rebalance_strategy: str | Rebalancer | None = None,
        plugins: Plugins = (),
        connector: Connector | None = None,
        **settings: Unpack[typed_settings.ConnectorKeywords],
    ) -> None:
        named = decoder if isinstance(decoder, str) else None
        strategy = rebalance_strategy if isinstance(rebalance_strategy, str) else None
        given = {
            "zk_connect": zk_connect,
            "groupid": groupid,
            "decoder": named,
            "rebalance_strategy": strategy,
            **settings,
        }
        self.settings, self._security = read_connector_settings(config, given)
        where = find_registries(self.settings, coordination)
        host = plugin_host(plugins)
        chosen = (
            host.decoder(self.settings.decoder)
            if decoder is None or named is not None
            else as_decoder(decoder, "decoder")
        )
        self._decoder = None if type(chosen) is BytesSerde else chosen
        self._rebalancer = rebalancer_of(self.settings, rebalance_strategy, host)
        self._start_offsets = start_offsets
        self._codecs = host.codecs()
        self._consumer: ClassicConsumer | None = None
        self._feeds: list[GuardedFeed] = []
        self._begun = threading.Lock()
        self._shutting = False
        self._coordination = self._open_coordination(where, host)
        try:
            self._shell = ClassicShell(connector or self._open_connector())
        except BaseException:
            self._coordination.close()
            raise
        link = self._shell.connector
        self.consumer_id = make_consumer_id(
            self.settings.groupid, platform.node(), link.clock, link.entropy, self.settings.consumerid
        )

    # --- streams

    def create_message_streams(self, topics: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Create this number of streams of each topic; once per connector. The topics need not exist yet.

        Returns when the group has been joined and the first rebalance has ended. Raises `ConsumerRebalanceFailed` when
        that failed `rebalance.retries.max` times, as 0.7 does; the connector has then left the group and is shut down.
        Raises `ConfigError`, `CoordinationError`; it may be called again then.
        """
        if not topics:
            raise ConfigError("create_message_streams: name at least one topic")
        consumer = self._start(ClassicSubscription.topics(topics))
        streams = iter(self._streams(consumer))
        return {topic: [next(streams) for _ in range(count)] for topic, count in topics.items()}

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter | None = None,
        streams: int = 1,
        *,
        whitelist: str | None = None,
        blacklist: str | None = None,
    ) -> list[MessageStream]:
        """Return streams over all topics that the filter allows, now and later; once per connector, as above.

        `topic_filter` is a `TopicFilter`, or the regular expression of a whitelist (`whitelist=False`: of a
        blacklist); `streams` is their number.
        """
        given = [each for each in (topic_filter, whitelist, blacklist) if each is not None]
        if len(given) != 1:
            raise ConfigError("give exactly one of a TopicFilter, whitelist= and blacklist=")
        if whitelist is not None:
            topic_filter = TopicFilter.whitelist(whitelist)
        elif blacklist is not None:
            topic_filter = TopicFilter.blacklist(blacklist)
        assert topic_filter is not None
        return self._streams(self._start(ClassicSubscription.filter(topic_filter, streams)))

    def values(self, message: StreamMessage) -> list[Any]:
        """Return the value of a stream's message, or those in a compressed wrapper, which with `shallowiterator.enable`
        is one message, as it has one offset.

        Raises `ApiError` for a wrapper that cannot be opened, `DecodeError` from the decoder.
        """
        if not message.codec_id:
            return [message.value]
        found = [each.value for each in decode_set(encode_shallow(message.value, message.codec_id), self._codecs)]
        decoder = self._decoder
        if decoder is None:
            return found
        return [decoded_value(decoder, message._replace(value=value, codec_id=0)) for value in found]

    # --- offsets

    def commit_offsets(self, offsets: Mapping[Owned, int] | None = None) -> dict[Owned, int]:
        """Write how far each partition that is owned was consumed; or `offsets`, of those that are still owned.

        Returns what was written, by (topic, broker_partition). Who commits before processing (at most once) processes
        a message only if its partition is in there with its offset: otherwise it was taken away, and another consumer
        gets the message. Raises `CoordinationError`: then some may be written.
        """
        consumer = self._running()
        return self._ask(lambda done: consumer.commit(done, offsets))

    def owned(self) -> dict[Owned, int | None]:
        """Map each owned (topic, broker_partition) to the next offset to hand out; None while the broker is asked.

        What is owned may change at any time.
        """
        consumer = self._running()
        return self._ask(lambda done: done(Outcome(value=consumer.owned())))

    def seek(self, topic: str, place: BrokerPartition | tuple[int, int], offset: int | str) -> None:
        """Go back or forward in a partition that is owned: to an offset known from before, "smallest" or "largest".

        The next message of the partition, whatever its stream, comes from there. Raises `ConfigError` for a partition
        that is not owned now.
        """
        if isinstance(offset, str):
            if offset not in _NAMED:
                raise ConfigError(f"seek to {offset!r}: give an offset, smallest or largest")
            offset = _NAMED[offset]
        consumer, target = self._running(), offset

        def work(done: Callable[[Outcome[None]], None]) -> None:
            consumer.seek(topic, BrokerPartition(*place), target)
            done(Outcome())

        self._ask(work)

    # --- the end

    def shutdown(self, timeout: float = 60.0) -> None:
        """Stop fetching, end the streams, commit if that is automatic, leave the group. Twice is harmless.

        Raises `ClientTimeout` when the registries do not answer within `timeout` seconds, and the `CoordinationError`
        for which the last commit was not written; the connector is shut down all the same.
        """
        with self._begun:
            if self._shutting:
                return
            self._shutting = True
            consumer = self._consumer
        try:
            if consumer is not None:
                self._ask(lambda done: consumer.stop(lambda error: done(Outcome(error=error))), timeout, closing=True)
        finally:
            self._coordination.close()
            self._shell.close()

    close = shutdown

    def __enter__(self) -> ConsumerConnector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shell.is_foreign:
            self.shutdown()

    # --- inside

    def _start(self, subscription: ClassicSubscription) -> ClassicConsumer:
        """Start the consumer of the connector. Raises what prevents it from running."""
        with self._begun:
            self._check_open()
            if self._consumer is not None:
                raise BarnabasError("the streams of this connector have been created; take another connector")
            self._feeds = []
            consumer = ClassicConsumer(
                self._outside(),
                self.settings,
                group_id=self.settings.groupid,
                consumer_id=self.consumer_id,
                subscription=subscription,
                rebalancer=self._rebalancer,
                decoder=self._decoder,
                start_offsets=self._start_offsets,
                guard=self._guard,
            )
            self._consumer = consumer
        try:
            self._ask(lambda done: consumer.start(lambda error: done(Outcome(error=error))))
        except ConsumerRebalanceFailed:
            self._leave()  # else the group would count on a member that reads nothing
            raise
        except BarnabasError:
            with self._begun:
                if not self._shutting:
                    self._consumer = None
            raise
        return consumer

    def _leave(self) -> None:
        try:
            self.shutdown()
        except BarnabasError as error:
            logger.warning("consumer %s: leaving the group failed: %s", self.consumer_id, error)

    def _outside(self) -> ConsumerOutside:
        link = self._shell.connector
        return ConsumerOutside(
            scheduler=self._shell.scheduler,
            clock=link.clock,
            entropy=link.entropy,
            coordination=self._coordination,
            connect=link.connect,
            codecs=self._codecs,
            report=logger.warning,
        )

    def _guard(self, queue: StreamQueue) -> GuardedFeed:
        feed = GuardedFeed(queue)
        self._feeds.append(feed)
        return feed

    def _streams(self, consumer: ClassicConsumer) -> list[MessageStream]:
        limit_ms = self.settings.consumer_timeout_ms
        timeout_s = None if limit_ms < 0 else limit_ms / 1000
        readers: Sequence[Any] = consumer.readers
        return [MessageStream(reader, feed, timeout_s) for reader, feed in zip(readers, self._feeds, strict=True)]

    def _running(self) -> ClassicConsumer:
        self._check_open()
        if self._consumer is None:
            raise BarnabasError("create the message streams first")
        return self._consumer

    def _check_open(self) -> None:
        if self._shutting:
            raise ClosedError("the consumer connector is shut down")

    def _ask(
        self,
        work: Callable[[Callable[[Outcome[T]], None]], None],
        timeout: float | None = None,
        *,
        closing: bool = False,
    ) -> T:
        """Call `BlockingShell.on_reactor`; raise `ClosedError` if the connector is shut down."""

        def run(done: Callable[[Outcome[T]], None]) -> None:
            if self._shutting and not closing:
                done(Outcome(error=ClosedError("the consumer connector is shut down")))
                return
            try:
                work(done)
            except Exception as error:  # noqa: BLE001  for who asked, and would wait for ever
                done(Outcome(error=error))

        return self._shell.on_reactor(run, timeout, f"not done within {timeout} s")

    def _open_coordination(self, where: object, host: PluginHost) -> Coordination:
        from ...compose.coordination import client_coordination

        return client_coordination(
            where,
            session_timeout_ms=self.settings.zk_sessiontimeout_ms,
            connect_timeout_ms=self.settings.zk_connectiontimeout_ms,
            settings=self.settings.coordination_settings,
            report=logger.warning,
            plugins=host,
        )

    def _open_connector(self) -> Connector:
        from ...compose.clients import client_connector

        return client_connector(
            (),
            client_id=self.settings.client_id,
            request_timeout_ms=self.settings.socket_timeout_ms,
            connect_timeout_ms=self.settings.socket_connection_setup_timeout_ms,
            protocol="classic",
            report=logger.warning,
            security=self._security,
        )
