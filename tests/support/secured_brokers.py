"""Three brokers as processes over one etcd, whose configuration files and certificates change by restarts or live."""

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any

import trustme
from attrs import define, field
from support.certificates import authority, chain, pem, write_pem
from support.etcd_server import EtcdServer
from support.ports import free_ports
from support.process import BrokerProcess
from support.waiting import wait_for

from barnabas import Admin, Consumer, Producer
from barnabas.ports.broker_api.acls import AclBinding, PatternType, ResourceType
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.errors import BarnabasError

PATIENCE_S = 300.0
PARTITIONS = 6


def issued(*hosts: str) -> trustme.LeafCert:
    """Return a further certificate of the brokers, with the subject of the earlier ones."""
    return authority().issue_cert(
        *hosts, common_name="broker", organization_name="Barnabas", organization_unit_name="brokers"
    )


class SecuredBrokers:
    """Brokers 1 to 3; `settings` of a broker are those of all with its own listeners over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plain = free_ports(3)
        self.secure = free_ports(3)
        self.ca = write_pem(folder, "ca.pem", pem(authority().cert_pem))
        for number in (1, 2, 3):
            self.renew(number)
        self._etcd = EtcdServer(folder / "etcd")
        self._etcd.start()
        self._etcd.wait_ready()
        self._running: dict[int, BrokerProcess] = {}

    def renew(self, number: int) -> str:
        """Write another certificate of a broker to its file; return the path."""
        leaf = issued("127.0.0.1", "localhost")
        path = Path(write_pem(self.folder, "new.pem", pem(leaf.private_key_pem) + chain(leaf)))
        return str(path.rename(self.folder / f"broker-{number}.pem"))

    def bootstrap(self, *, secure: bool) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in (self.secure if secure else self.plain))

    def listeners(self, number: int, *names: str) -> str:
        ports = {"PLAINTEXT": self.plain, "SASL_SSL": self.secure}
        return ",".join(f"{name}://127.0.0.1:{ports[name][number - 1]}" for name in names)

    def start(self, number: int, names: tuple[str, ...], settings: Mapping[str, str]) -> None:
        """Start a broker with listeners of these names."""
        common = {
            "broker.id": str(number),
            "coordination": f"etcd://127.0.0.1:{self._etcd.port}/barnabas",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
            "min.insync.replicas": "2",
            "listeners": self.listeners(number, *names),
            "ssl.keystore.location": str(self.folder / f"broker-{number}.pem"),
            "ssl.truststore.location": self.ca,
        }
        config = self.folder / f"server-{number}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in {**common, **settings}.items()))
        config.chmod(0o600)
        self._running[number] = BrokerProcess(self.folder / f"data-{number}", listen=(), config=config)

    def restart(self, number: int, names: tuple[str, ...], settings: Mapping[str, str]) -> None:
        """Stop a broker in order, and start it with other settings."""
        assert self._running.pop(number).stop() == 0
        self.start(number, names, settings)

    def has_logged(self, number: int, text: str) -> bool:
        return text in self._running[number].log()

    def stop(self) -> None:
        for broker in self._running.values():
            broker.stop()
        self._etcd.stop()


def wait_in_sync(bootstrap: str, client: Mapping[str, str], *topics: str) -> None:
    """Wait until all replicas of the topics are in sync, as an administrator waits between two restarts."""

    def are_in_sync() -> bool:
        try:
            with Admin(bootstrap, config=client) as admin:
                found = admin.describe_topics(list(topics))
        except BarnabasError:
            return False
        return all(len(each.isr) == 3 for topic in found for each in topic.partitions)

    wait_for(are_in_sync, PATIENCE_S, pause_s=0.1)


@define(eq=False)
class Load:
    """An idempotent producer and a member of a consumer group, in threads; both can continue with other settings."""

    topic: str
    group: str
    sent: int = 0
    acknowledged: set[int] = field(factory=set)
    consumed: Counter[int] = field(factory=Counter)
    faults: list[str] = field(factory=list)
    longest_wait_s: float = 0.0
    """The longest time between sending and acknowledgement: how long a partition was unavailable, at most."""
    _stopping: Event = field(factory=Event)
    _threads: list[Thread] = field(factory=list)

    def start(self, bootstrap: str, producer: Mapping[str, Any], consumer: Mapping[str, Any]) -> None:
        self._stopping.clear()
        self._threads = [
            Thread(target=self._run_and_record_failure, args=(self._produce, bootstrap, producer)),
            Thread(target=self._run_and_record_failure, args=(self._consume, bootstrap, consumer)),
        ]
        for thread in self._threads:
            thread.start()

    def abandon(self) -> None:
        """End the threads of a test that has failed."""
        self._stopping.set()

    def pause(self) -> None:
        """Close both clients; what was sent is acknowledged, and what was consumed is committed."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def wait_for_more(self, count: int = 100) -> None:
        """Wait until `count` further messages were acknowledged and consumed."""
        sent, consumed = len(self.acknowledged), self.consumed.total()
        wait_for(
            lambda: (
                self.faults or (len(self.acknowledged) >= sent + count and self.consumed.total() >= consumed + count)
            ),
            PATIENCE_S,
            pause_s=0.02,
        )
        assert self.faults == []

    def finish(self, bootstrap: str, consumer: Mapping[str, Any]) -> None:
        """Stop, consume what is left, and check that no message was lost or doubled."""
        self.pause()
        assert self.faults == []
        self._stopping.clear()
        rest = Thread(target=self._run_and_record_failure, args=(self._consume, bootstrap, consumer))
        rest.start()
        try:
            wait_for(lambda: self.faults or self.consumed.keys() >= self.acknowledged, PATIENCE_S, pause_s=0.05)
        finally:
            self._stopping.set()
            rest.join(PATIENCE_S)
        assert self.faults == []
        assert len(self.acknowledged) == self.sent > 0
        stored = self._stored(bootstrap, consumer)
        assert {number: count for number, count in stored.items() if count != 1} == {}
        assert stored.keys() == self.acknowledged
        assert {number: count for number, count in self.consumed.items() if count != 1} == {}

    def _run_and_record_failure(self, work: Any, *given: Any) -> None:
        try:
            work(*given)
        except BaseException as error:  # noqa: BLE001  a thread's; the test shows it
            self.faults.append(f"{work.__name__}: {error!r}")

    def _produce(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        own = {"acks": "all", "enable.idempotence": "true", "linger.ms": "5", "delivery.timeout.ms": "240000"}
        with Producer(bootstrap, config={**own, **settings}) as producer:
            while not self._stopping.is_set():
                numbers = range(self.sent, self.sent + 20)
                self.sent += len(numbers)
                began = time.monotonic()
                handles = [producer.send(self.topic, b"%d" % each, key=b"%d" % each) for each in numbers]
                for number, handle in zip(numbers, handles, strict=True):
                    handle.result(PATIENCE_S)
                    self.acknowledged.add(number)
                self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began)
                self._stopping.wait(0.02)

    def _consume(self, bootstrap: str, settings: Mapping[str, Any]) -> None:
        own = {
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "session.timeout.ms": "60000",
        }
        with Consumer(bootstrap, config={**own, **settings}) as consumer:
            consumer.subscribe(self.topic)
            while not self._stopping.is_set():
                messages = consumer.poll_many(500, 0.2)
                if messages:
                    self.consumed.update(int(each.value or b"") for each in messages)
                    consumer.commit(timeout=PATIENCE_S)

    def _stored(self, bootstrap: str, settings: Mapping[str, Any]) -> Counter[int]:
        """Count each message in the logs."""
        found: Counter[int] = Counter()
        with Consumer(bootstrap, config=settings) as consumer:
            consumer.assign([(self.topic, number) for number in range(PARTITIONS)])
            for number in range(PARTITIONS):
                consumer.seek((self.topic, number), "earliest")
            wait_for(
                lambda: (
                    found.update(int(each.value or b"") for each in consumer.poll_many(5000, 0.2))
                    or found.total() >= len(self.acknowledged)
                ),
                PATIENCE_S,
            )
            found.update(int(each.value or b"") for each in consumer.poll_many(5000, 1.0))
        return found


def acl(user: str, operation: str, resource: str) -> AclBinding:
    """Return an ACL that allows a user an operation on a resource like `topic:orders`; `topic:orders*` is a prefix."""
    kind, _, name = resource.partition(":")
    is_prefix = name.endswith("*") and len(name) > 1
    return AclBinding(
        resource_type=ResourceType[kind.upper()],
        resource_name=name.rstrip("*") if is_prefix else name,
        pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal=f"User:{user}",
        operation=Operation[operation],
    )
