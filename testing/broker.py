"""`TestBroker`: a broker for one test, or for many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from attrs import evolve

from ..app.clients.shared.signature import SettingsSignature
from ..app.compose.broker import outside_of
from ..app.compose.memory import MemoryStorage
from ..app.config import BrokerConfig
from ..app.embedded_broker import Broker, broker_defaults
from ..app.typed_broker_settings import BrokerKeywords
from ..core.message.message import Message
from ..ports.broker_api.consumer_groups import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupMember,
)
from ..ports.broker_api.envelope import BrokerApi, Request, ResultT
from ..ports.broker_api.groups import DescribeGroups, LeaveGroup, LeavingMember, ListGroups
from ..ports.broker_api.share_groups import ShareGroupDescribe, ShareGroupHeartbeat
from ..ports.broker_api.topics import CreateTopics, DeleteTopics, NewTopic
from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, ClosedError, ConfigError
from ..ports.scheduler import Outcome, Scheduler, Timer
from .faults import Faults
from .faulty_api import FaultyApi, faulty_servers
from .own_clients import CachedProducer, admin_of, consumer_of, producer_of, share_consumer_of, text_of
from .ports import reserved
from .produced import assert_produced, read_all
from .requests import Asked, ask
from .running import started, stopped
from .security import TestSecurity

if TYPE_CHECKING:
    from types import TracebackType

    from ..app.broker.state.dependencies import Outside, Server
    from ..app.clients.admin.admin import Admin
    from ..app.clients.consumer.consumer import Consumer
    from ..app.clients.producer.producer import Producer
    from ..app.clients.share.share_consumer import ShareConsumer
    from ..app.clients.shared.typed_settings import (
        ClientKeywords,
        ConsumerArguments,
        ProducerArguments,
        ShareConsumerArguments,
    )
    from ..app.in_process import InProcessLink
    from ..core.client.producer.producer_batch import Delivery
    from ..plugins.host import PluginHost
    from ..ports.coordination import Coordination
    from ..ports.metrics import Metrics
    from ..ports.transport import Transport

TEST_DEFAULTS: Mapping[str, object] = {
    "auto.create.topics.enable": True,
    "background.threads": 1,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 10,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""The settings in which a test broker differs from one in production: a rebalance does not wait for members that may
join, nor until members of the KIP-848 protocol ask after 5 s; sessions may be short, and expired messages are deleted
at once.
"""

_numbers = count(1)


T = TypeVar("T")
Callback = Callable[[], None]


class JumpingClock:
    """Fulfils `Clock`: the machine's clock, ahead by as much as it was made to jump."""

    def __init__(self) -> None:
        self._ahead_ms = 0.0
        self._wall_ahead_ms = 0.0

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000 + int(self._wall_ahead_ms)

    def monotonic_ms(self) -> float:
        """Return milliseconds since an arbitrary start; never goes back."""
        return time.monotonic_ns() / 1e6 + self._ahead_ms

    def advance(self, ms: float) -> None:
        """Be ahead by so much more. Raises `ValueError` for a negative step."""
        if ms < 0:
            raise ValueError(f"time does not go back by {-ms} ms")
        self._ahead_ms += ms
        self._wall_ahead_ms += ms

    def set_right(self) -> None:
        """Let the wall clock say what the machine's says. The monotonic clock stays ahead."""
        self._wall_ahead_ms = 0.0


class JumpingScheduler:
    """Fulfils `Scheduler` with another one; its timers follow a `JumpingClock`."""

    def __init__(self, inner: Scheduler, clock: JumpingClock) -> None:
        self._inner = inner
        self._clock = clock
        self._timers: dict[_JumpingTimer, None] = {}

    def call_later(self, delay_ms: float, callback: Callback) -> Timer:
        """Run `callback` after `delay_ms`, or when a jump takes the clock there."""
        return _JumpingTimer(self._inner, self._timers, self._clock.monotonic_ms() + delay_ms, delay_ms, callback)

    def call_soon(self, callback: Callback) -> None:
        """Run `callback` on the owner thread. Callable from any thread."""
        self._inner.call_soon(callback)

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        """Run `work` on a worker thread, then `done` on the owner."""
        self._inner.offload(work, done)

    def jump(self, ms: float, arrived: Callback) -> None:
        """Let `ms` pass at once: what is due by then runs on the next turn, in the order of its time; then `arrived`.

        Owner thread only. A periodic timer runs once, however many of its periods have passed.
        """
        self._clock.advance(ms)
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._timers, key=lambda timer: timer.due_ms):
            timer.wait_again(timer.due_ms - now_ms)
        self._inner.call_later(0.0, arrived)


class _JumpingTimer:
    """One waiting callback, and the timer of the other scheduler that it waits for."""

    def __init__(
        self,
        scheduler: Scheduler,
        waiting: dict[_JumpingTimer, None],
        due_ms: float,
        delay_ms: float,
        callback: Callback,
    ) -> None:
        self._scheduler = scheduler
        self._waiting = waiting
        self.due_ms = due_ms
        self._callback = callback
        self._inner = scheduler.call_later(delay_ms, self._run)
        waiting[self] = None

    def cancel(self) -> None:
        self._waiting.pop(self, None)
        self._inner.cancel()

    def wait_again(self, delay_ms: float) -> None:
        """Restart the wait with `delay_ms` from now; owner thread only."""
        self._inner.cancel()
        self._inner = self._scheduler.call_later(max(0.0, delay_ms), self._run)

    def _run(self) -> None:
        if self in self._waiting:
            del self._waiting[self]
            self._callback()


class TestBroker:
    """A broker in this process, in memory, on a free port of 127.0.0.1. Every Kafka client can use it.

        with TestBroker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
            ...
            broker.assert_produced("orders", [{"id": 1}])

    config:    Kafka's dotted keys over `TEST_DEFAULTS`; `settings` are the same in snake case and win.
    data_dir:  keep the data in this folder instead of in memory.
    listeners, plugins: as of `Broker`.
    security:  "ssl", "sasl_plaintext" or "sasl_ssl", for its `kafka://` listeners; it makes certificates for TLS.
    users:     user → password, for SASL with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.

    It may be stopped and started again, at the same address and with its data, until `close` or the end of the context.
    `faults` are what goes wrong on demand. Raises `ConfigError`. All methods may be called from any thread.
    """

    __test__ = False  # for pytest: this is no class of tests

    __signature__ = SettingsSignature(BrokerKeywords, broker_defaults)

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        data_dir: str | PathLike[str] | None = None,
        listeners: Sequence[str] = ("kafka://127.0.0.1:0",),
        plugins: Sequence[object] = (),
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        self.security = TestSecurity(security, users)
        """The users, certificates and denied operations; `client_settings(user)` are what clients need."""
        self._given = {**TEST_DEFAULTS, **self.security.broker_settings(), **(config or {})}
        self._settings = settings
        self._data_dir = data_dir
        self._plugins = (*plugins, *([self.security.denied] if self.security.is_secured else ()))
        self._memory = MemoryStorage() if data_dir is None else None
        self._ports = ExitStack()
        self._listeners = tuple(map(self.security.listener, listeners))
        self.clock = JumpingClock()
        """The clock of the broker; see `jump`."""
        self.faults = Faults(self._soon)
        """The faults that a test can inject."""
        self._scheduler: JumpingScheduler | None = None
        self._servers: list[Server] = []
        self._producer = CachedProducer()
        self._broker = self._made()
        self._is_running = False

    # --- life

    def start(self) -> TestBroker:
        """Start, or start again where it was stopped; returns when it accepts connections. Twice is harmless."""
        if self._is_running:
            return self
        if not self._broker.listeners:
            self._listeners = tuple(reserved(listener, self._ports) for listener in self._listeners)
        self._broker = self._made()
        self._broker.start()
        self._listeners = tuple(map(self.security.listener, self._broker.listeners))
        self._is_running = True
        started(self)
        return self

    def stop(self) -> None:
        """Stop in order; connections are refused then. The data and the address stay. Twice is harmless."""
        if not self._is_running:
            return
        self._is_running = False
        stopped(self)
        self._producer.close()
        self._broker.close()
        self._servers.clear()
        self._scheduler = None

    def restart(self) -> None:
        """Stop and start: every connection is lost, nothing else."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop for good, and give the address up."""
        self.stop()
        self.faults.clear()
        self._ports.close()
        self.security.close()

    def __enter__(self) -> TestBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TestBroker {self.bootstrap or 'not started'}{'' if self._is_running else ', stopped'}>"

    @property
    def running(self) -> bool:
        """Whether it has been started and not been stopped since."""
        return self._is_running

    @property
    def bootstrap(self) -> str:
        """`host:port` for a client's `bootstrap.servers`; the same after a restart. Empty before the first start."""
        return self._broker.bootstrap

    @property
    def listeners(self) -> list[str]:
        """`kafka://host:port` of each listener, with real ports; empty before the first start."""
        return self._broker.listeners

    @property
    def config(self) -> BrokerConfig:
        """The configuration of the broker."""
        return self._broker.config

    @property
    def source(self) -> Broker:
        """The broker that `assert_produced` reads messages from."""
        return self._broker

    @property
    def inner(self) -> Broker:
        """The broker itself; clients that get it in place of an address bypass the faults."""
        return self._broker

    def _made(self) -> Broker:
        return Broker(
            self._data_dir,
            listeners=self._listeners,
            storage="fs" if self._memory is None else "memory",
            plugins=self._plugins,
            config=self._given,
            outside=self._outside,
            **self._settings,
        )

    def _outside(
        self,
        config: BrokerConfig,
        *,
        scheduler: Scheduler,
        transport: Transport,
        metrics: Metrics | None,
        report: Callable[[str], None],
        plugins: PluginHost,
    ) -> Outside:
        jumping = self._scheduler = JumpingScheduler(scheduler, self.clock)
        memory = self._memory
        made = outside_of(
            config,
            scheduler=jumping,
            transport=transport,
            clock=self.clock,
            metrics=metrics,
            open_log_dirs=None if memory is None else memory.open_log_dirs,
            open_coordination=None if memory is None else memory.open_coordination,
            report=report,
            plugins=plugins,
        )
        servers = {
            protocol: faulty_servers(make, self.faults, jumping, self._servers.append)
            for protocol, make in made.servers.items()
        }
        return evolve(made, servers=servers)

    # --- for clients in the same process that get this object in place of an address

    @property
    def scheduler(self) -> Scheduler:
        """The broker's reactor. Raises `ClosedError` while it does not run."""
        return self._broker.scheduler

    @property
    def api(self) -> BrokerApi:
        """The API that answers requests, with faults, on the broker's own thread. Raises `ClosedError` unless the
        broker runs.
        """
        return FaultyApi(self._broker.api, self.faults, self._running_scheduler())

    def attach(self, link: InProcessLink) -> None:
        """Register or remove the `link` of a client of this process; clients do this themselves."""
        self._broker.attach(link)

    def detach(self, link: InProcessLink) -> None:
        """Register or remove the `link` of a client of this process; clients do this themselves."""
        self._broker.detach(link)

    def open_coordination(self) -> Coordination:
        """See `Broker.open_coordination`."""
        return self._broker.open_coordination()

    # --- topics and messages; these bypass the faults

    def create_topic(
        self, name: str | None = None, *, partitions: int = -1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Make a topic; returns its name (None: a new one). Raises `ApiError`."""
        chosen = name or f"topic-{next(_numbers)}"
        texts = {key: text_of(value) for key, value in (configs or {}).items()}
        made = self.ask(CreateTopics(topics=[NewTopic(name=chosen, partitions=partitions, configs=texts)])).topics[0]
        if made.error is not ErrorCode.NONE:
            raise ApiError(made.error, made.error_message or chosen)
        return chosen

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages; a missing one is not an error. Raises `ApiError`."""
        gone = self.ask(DeleteTopics(names=[name])).topics[0]
        if gone.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise ApiError(gone.error, gone.error_message or name)

    def produce(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> list[Delivery]:
        """Produce messages and wait for their delivery: a `Message`, a value, or (key, value); a str means UTF-8, a
        dict or list JSON. Raises why one was not delivered."""
        return self._producer.produce(self._started(), topic, messages, partition)

    def produced(self, topic: str, *, partition: int | None = None, committed: bool = False) -> list[Message]:
        """Return the messages that a topic holds, by partition and offset; none if there is no such topic.

        `committed`: without those of transactions that are open or were aborted.
        """
        return read_all(self._started(), topic, partition, committed=committed)

    def assert_produced(self, topic: str, values: Sequence[Any] | None = None, **expected: Any) -> list[Message]:
        """Wait until a topic holds what is expected; see `barnabas.testing.assert_produced`."""
        __tracebackhide__ = True
        self._started()
        return assert_produced(topic, values, broker=self, **expected)

    # --- clients of ours; their requests go through the faults

    def producer(self, *, user: str | None = None, **settings: Unpack[ProducerArguments]) -> Producer:
        """Return a `Producer` of this broker; the caller closes it. `user`: who logs in; None: the first of `users`."""
        return producer_of(self.bootstrap, **{**self.security.keywords(user), **settings})

    def consumer(self, *, user: str | None = None, **settings: Unpack[ConsumerArguments]) -> Consumer[Any, Any]:
        """Return a `Consumer` of this broker that begins with the earliest messages; the caller closes it."""
        return consumer_of(self.bootstrap, **{**self.security.keywords(user), **settings})

    def share_consumer(
        self, *, user: str | None = None, **settings: Unpack[ShareConsumerArguments]
    ) -> ShareConsumer[Any, Any]:
        """Return a `ShareConsumer` of this broker; the caller closes it.

        A group that is not configured begins with the earliest messages. `jump` lets its locks lapse.
        """
        with self.admin(user=user) as admin:
            return share_consumer_of(admin, self.bootstrap, **{**self.security.keywords(user), **settings})

    def admin(self, *, user: str | None = None, **settings: Unpack[ClientKeywords]) -> Admin:
        """Return an `Admin` of this broker; the caller closes it."""
        return admin_of(self.bootstrap, **{**self.security.keywords(user), **settings})

    # --- what happens on demand

    def jump(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0) -> None:
        """Let the broker's clock jump ahead; return when everything that is due by then has been done.

        Sessions end, messages expire, and delayed requests are answered, as if all clients had been silent meanwhile.
        Clients and their clocks are not affected, and idle connections stay open.
        """
        step_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + ms
        if step_ms < 0:
            raise ConfigError("time does not go back")
        if not self._is_running:
            self.clock.advance(step_ms)
            return
        scheduler, arrived = self._running_scheduler(), Asked[None]()
        scheduler.call_soon(lambda: scheduler.jump(step_ms, lambda: arrived.set(None)))
        arrived.get()

    def client_settings(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return what a client of Barnabas or librdkafka needs to connect, as `user` (None: the first of `users`)."""
        return {"bootstrap.servers": self.bootstrap, **self.security.client_settings(user, mechanism)}

    def deny(self, principal: str, operation: str, resource: str) -> None:
        """Deny an operation, such as `deny("User:alice", "Write", "topic:orders")`, until `allow_all`.

        `principal` "User:*": everyone. `resource`: TYPE:NAME, with a type of topic, group, transactional-id, user and
        delegation-token and "*" for every name; or "cluster". Raises `ConfigError` without `security` and `users`.
        """
        self.security.deny(principal, operation, resource)

    def allow_all(self) -> None:
        """Allow again what was denied."""
        self.security.denied.clear()

    def disconnect_clients(self) -> None:
        """Close every open connection now; clients may connect again."""
        done = Asked[None]()

        def close() -> None:
            for server in self._servers:
                server.close("")
            done.set(None)

        self._running_scheduler().call_soon(close)
        done.get()

    def expire_member(self, group: str, member: str) -> str:
        """End the session of a member of a group, as if it had not been heard of for too long.

        `member`: its member id, its client id, or its `group.instance.id`. Knows groups of the classic protocol,
        of KIP-848, and share groups. Returns the member id. The group rebalances; the member learns of it with its next
        request. What a member of a share group has acquired stays locked. Raises `ConfigError` listing the members
        there are.
        """
        types = {each.group_id: each.group_type for each in self.ask(ListGroups()).groups}
        if group not in types:
            raise ConfigError(f"there is no group {group!r}, there is: {', '.join(sorted(types)) or 'none'}")
        described = self._members(group, types[group])
        found = [each for each in described if member in (each.member_id, each.client_id, each.instance_id)]
        if len(found) != 1:
            there = ", ".join(f"{each.member_id} (client {each.client_id})" for each in described) or "no member"
            what = "not a member" if not found else "not one member"
            raise ConfigError(f"{member!r} is {what} of group {group}, there is: {there}")
        error = self._remove_member(group, types[group], found[0])
        if error is not ErrorCode.NONE:
            raise ApiError(error, f"{member} of group {group}")
        return found[0].member_id

    def ask(self, request: Request[ResultT]) -> ResultT:
        """Have the broker answer a request of `ports.broker_api`, past the faults. Raises `BarnabasError`."""
        return ask(self._started(), request)

    # --- within

    def _members(self, group: str, group_type: str) -> Sequence[ConsumerGroupMember]:
        """Return the members of a group of any type."""
        if group_type == "share":
            shared = self.ask(ShareGroupDescribe(group_ids=[group])).groups[0]
            _check(shared.error, shared.error_message, group)
            return [ConsumerGroupMember(member_id=each.member_id, client_id=each.client_id) for each in shared.members]
        if group_type == "consumer":
            described = self.ask(ConsumerGroupDescribe(group_ids=[group])).groups[0]
            _check(described.error, described.error_message, group)
            return described.members
        classic = self.ask(DescribeGroups(group_ids=[group])).groups[0]
        _check(classic.error, classic.error_message, group)
        return [
            ConsumerGroupMember(
                member_id=each.member_id, instance_id=each.group_instance_id, client_id=each.client_id, member_type=0
            )
            for each in classic.members
        ]

    def _remove_member(self, group: str, group_type: str, member: ConsumerGroupMember) -> ErrorCode:
        if group_type == "share":
            leave = ShareGroupHeartbeat(
                group_id=group, member_id=member.member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH
            )
            return self.ask(leave).error
        if member.member_type > 0:
            request = ConsumerGroupHeartbeat(
                group_id=group,
                member_id=member.member_id,
                member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                instance_id=member.instance_id,
            )
            return self.ask(request).error
        leaving = LeavingMember(member_id=member.member_id, group_instance_id=member.instance_id)
        left = self.ask(LeaveGroup(group_id=group, members=[leaving]))
        return next((each for each in (left.error, *(each.error for each in left.members)) if each), ErrorCode.NONE)

    def _started(self) -> Broker:
        if not self._is_running:
            raise ClosedError("the test broker does not run: call start()")
        return self._broker

    def _running_scheduler(self) -> JumpingScheduler:
        if self._scheduler is None:
            raise ClosedError("the test broker does not run: call start()")
        return self._scheduler

    def _soon(self, callback: Callable[[], None]) -> None:
        scheduler = self._scheduler
        if scheduler is not None:
            with suppress(ClosedError):
                scheduler.call_soon(callback)


def _check(error: ErrorCode, text: str | None, group: str) -> None:
    if error is not ErrorCode.NONE:
        raise ApiError(error, text or f"group {group}")
