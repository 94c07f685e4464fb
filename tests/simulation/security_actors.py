"""The access of a guest to a topic: an operator who grants and revokes it, guests who try, and what they may see."""

from collections.abc import Sequence
from math import inf

from simulation.actors import CODECS, Actor
from simulation.cluster_actors import ClusterWriter
from simulation.cluster_checker import Broken, ClusterChecker

from barnabas import Admin, SimpleConsumer
from barnabas.adapters.wire_kafka.client import KafkaLink
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.cluster import layout
from barnabas.core.cluster.layout import EntityKind
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.core.message.message_set import MessageSet
from barnabas.core.security.sasl.client import SaslFactory
from barnabas.core.security.sasl.plain import PlainClient
from barnabas.core.tree.tree import Change
from barnabas.ports.broker_api.acls import AclBinding, AclBindingFilter, ResourceType
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.ports.values import Secret
from barnabas.simulation import Program, World

GUARDED = "guarded"
"""The topic that a guest may use at times."""
TP = TopicPartition(GUARDED, 0)
BROKER, ADMIN, APP, GUEST = "broker", "admin", "app", "guest"
USERS = (BROKER, ADMIN, APP, GUEST)
SESSION_MS = 2_000
"""`connections.max.reauth.ms`."""
KNOWN_AFTER_MS = 5_000.0
"""A broker that works, and reaches the coordination service, decides by ACLs that are not older than this."""
KNOWN_AFTER_CALM_MS = 2_000.0
"""After a while without faults, they know them sooner."""
LOOK_MS = 100.0
DRIFT = 1.02
"""The clock of a broker may be slower than this."""


def login(user: str) -> SaslFactory:
    """Return how this user logs in."""
    return lambda _host: PlainClient(user, Secret(f"{user}-password"))


def acl(user: str, topic: str, operation: Operation) -> AclBinding:
    return AclBinding(
        resource_type=ResourceType.TOPIC, resource_name=topic, principal=f"User:{user}", operation=operation
    )


class Access:
    """The rights of the guest in the tree, since when, and the outcomes of its requests."""

    def __init__(self, checker: ClusterChecker) -> None:
        self.checker = checker
        self.world = checker.world
        self.granted: bool = False
        self.since_ms: float = self.world.clock.monotonic_ms()
        """When that changed last."""
        self.known_after_ms = KNOWN_AFTER_MS
        """Settable: `KNOWN_AFTER_MS`, or less when there are no faults."""
        self.accepted: dict[int, bytes] = {}
        """By offset: the messages of the guest that were acknowledged."""
        self.denied: set[bytes] = set()
        self.read = 0
        self._works_since_ms: dict[int, float] = dict.fromkeys(self.world.brokers, inf)
        self._reports = 0
        self._path = layout.entity_path(EntityKind.ACLS, f"Topic:LITERAL:{GUARDED}")
        changed = self.world.tree.changed

        def both(changes: Sequence[Change]) -> None:
            changed(changes)
            self._tree_changed(changes)

        self.world.tree.changed = both
        self._look()

    def _tree_changed(self, changes: Sequence[Change]) -> None:
        if not any(change.path == self._path for change in changes):
            return
        granted = GUEST.encode() in (self.world.node(self._path) or b"")
        if granted is not self.granted:
            self.granted, self.since_ms = granted, self.world.clock.monotonic_ms()

    def _look(self) -> None:
        """Since when brokers work; and no request of a broker was ever denied."""
        now_ms = self.world.clock.monotonic_ms()
        for broker_id, since_ms in self._works_since_ms.items():
            works = self.checker.works(broker_id)
            self._works_since_ms[broker_id] = min(since_ms, now_ms) if works else inf
        reports, self._reports = self.world.reports[self._reports :], len(self.world.reports)
        for line in reports:
            if f"Principal = User:{BROKER} is Denied" in line:
                raise Broken(f"denied: a request of a broker: {line}")
        self.world.scheduler.call_later(LOOK_MS, self._look)

    def is_known(self, broker_id: int, asked_ms: float) -> bool:
        """Return True if this broker decided a request by what the tree has now: it has worked for long enough since
        the last change when the request was sent, and still does."""
        since_ms = max(self.since_ms, self._works_since_ms[broker_id])
        return asked_ms - since_ms > self.known_after_ms and self.checker.works(broker_id)

    def check_granted(self, broker_id: int, asked_ms: float, what: str) -> None:
        """The guest was allowed something."""
        self.world.reached["acl: a request of the guest is allowed"] += 1
        if not self.granted and self.is_known(broker_id, asked_ms):
            passed_ms = asked_ms - self.since_ms
            raise Broken(f"acl: {what}, {passed_ms:.0f} ms after the ACL was removed; broker {broker_id} worked")

    def check_denied(self, broker_id: int, asked_ms: float, what: str) -> None:
        """The guest was denied something."""
        self.world.reached["acl: a request of the guest is denied"] += 1
        if self.granted and self.is_known(broker_id, asked_ms):
            passed_ms = asked_ms - self.since_ms
            raise Broken(f"denied: {what}, {passed_ms:.0f} ms after the ACL was added; broker {broker_id} worked")

    def observe(self, offset: int, value: bytes) -> None:
        """Note that a reader got this message of the guarded topic."""
        if value in self.denied:
            raise Broken(f"visible: {value!r} at offset {offset} of {GUARDED}, which was denied")
        known = self.accepted.get(offset, value)
        if known != value:
            raise Broken(f"lost: {known!r} was acknowledged at offset {offset} of {GUARDED}, which has {value!r}")


class Guest(Actor):
    """Writes to one broker and reads from it, allowed or not. One in two never authenticates again."""

    def __init__(self, access: Access, broker_id: int) -> None:
        world = access.world
        self.broker_id = broker_id
        self.entropy = world.entropy.child(f"guest {broker_id}")
        self.lapses = self.entropy.below(2) == 0
        self._access = access
        self._sent = 0
        self._expires_ms = inf
        super().__init__(world, f"guest-{broker_id}", broker_id)
        self.sasl = login(GUEST)

    def on_link(self, link: KafkaLink) -> None:
        if self.world.clock.monotonic_ms() > self._expires_ms:
            self.world.reached["session: ended without another authentication"] += 1
        self._expires_ms = inf
        timer = link._reauthentication  # clients of ours would authenticate again
        if self.lapses and timer is not None:
            timer.cancel()
            self._expires_ms = self.world.clock.monotonic_ms() + SESSION_MS * DRIFT

    def act(self) -> None:
        topic = self.world.look.topics().get(GUARDED)
        if topic is None:
            self.later()
            return
        asked_ms = self.world.clock.monotonic_ms()
        if self.entropy.below(2):
            self._produce(asked_ms, topic.topic_id)
        else:
            self._fetch(asked_ms, topic.topic_id if self.entropy.below(2) else NO_TOPIC_ID)

    def _produce(self, asked_ms: float, topic_id: bytes) -> None:
        self._sent += 1
        value = b"guest %d %d" % (self.broker_id, self._sent)
        records = encode_batch([Message(value)], now_ms=self.world.clock.now_ms())

        def answered(result: ProduceResult) -> None:
            (part,) = result.partitions
            self._check_session(asked_ms)
            if part.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._access.denied.add(value)
                self._access.check_denied(self.broker_id, asked_ms, "Produce")
            elif part.error is ErrorCode.NONE:
                self._access.check_granted(self.broker_id, asked_ms, f"{value!r} was accepted")
                self._access.checker.acknowledged(topic_id, TP, part.base_offset)
                self._access.accepted[part.base_offset] = value
            self._again()

        request = Produce(partitions=[ProducePartition(GUARDED, 0, memoryview(records))], timeout_ms=1000)
        self.ask(request, answered)

    def _fetch(self, asked_ms: float, topic_id: bytes) -> None:
        how = "Fetch by name" if topic_id == NO_TOPIC_ID else "Fetch by id"

        def answered(result: FetchResult) -> None:
            self._check_session(asked_ms)
            for part in result.partitions:
                if part.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self._access.check_denied(self.broker_id, asked_ms, how)
                elif part.error is ErrorCode.NONE:
                    self._access.check_granted(self.broker_id, asked_ms, f"{how} was answered")
                    self._read(part.records)
            self._again()

        position = FetchPartition(GUARDED, 0, self.entropy.below(20), 8_000, topic_id=topic_id)
        self.ask(Fetch(partitions=[position], max_wait_ms=50), answered)

    def _read(self, records: object) -> None:
        data = records.read() if hasattr(records, "read") else bytes(records)  # type: ignore[call-overload]
        try:
            for message in MessageSet(data, CODECS):
                assert message.value is not None
                self._access.observe(message.offset, message.value)
                self._access.read += 1
        except ApiError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE or not self.world.reached["fault: rot"]:
                raise

    def _check_session(self, asked_ms: float) -> None:
        """A request was answered that was sent then."""
        if asked_ms > self._expires_ms:
            late_ms = asked_ms - self._expires_ms
            raise Broken(f"session: broker {self.broker_id} answers {late_ms:.0f} ms after the session has expired")

    def _again(self) -> None:
        self.later(20 + self.entropy.below(150))


class Guard:
    """The operator who grants the guest access, and takes it back."""

    ACLS = (acl(GUEST, GUARDED, Operation.WRITE), acl(GUEST, GUARDED, Operation.READ))

    def run(self, program: Program) -> None:
        entropy = program.world.entropy.child(f"guard {program.lives}")
        with Admin(program, request_timeout_ms=2000, default_api_timeout_ms=4000) as admin:
            while True:
                self.grant(admin)
                program.sleep(0.2 + 2 * entropy.fraction())
                self.revoke(admin)
                program.sleep(0.2 + (6 if entropy.below(4) == 0 else 1) * entropy.fraction())

    def grant(self, admin: Admin) -> None:
        admin.create_acls(self.ACLS)

    @staticmethod
    def revoke(admin: Admin) -> None:
        admin.delete_acls([AclBindingFilter(principal=f"User:{GUEST}")])


class AllowedWriter(ClusterWriter):
    """A writer whose access is never taken away."""

    def _settled(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            error = batch.error
            if isinstance(error, ApiError) and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise Broken(f"denied: a message of {APP}, which may write to the topic: {error}")
        super()._settled(batches)


def read_all(world: World, access: Access) -> None:
    """The whole guarded topic, as its leader has it: all that was acknowledged before, nothing that was denied.

    Guests continue writing meanwhile.
    """
    accepted = set(access.accepted)
    with SimpleConsumer(world.client("founder")) as consumer:
        seen: set[int] = set()
        offset = 0
        while True:
            found = list(consumer.fetch(GUARDED, 0, offset))
            if not found:
                break
            for message in found:
                assert message.value is not None
                access.observe(message.offset, message.value)
                seen.add(message.offset)
            offset = found[-1].offset + 1
    if lost := sorted(accepted - seen):
        raise Broken(f"lost: the offsets {lost[:5]} of {GUARDED}, which were acknowledged to the guest")
