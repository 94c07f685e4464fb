"""A cluster with SASL and ACLs: a guest whose access comes and goes, whose sessions end, and who never sees more."""

from typing import Any

from simulation.actors import Book
from simulation.client import TOPIC
from simulation.cluster_actors import ClusterWriter
from simulation.cluster_checker import Broken
from simulation.cluster_story import ClusterStory
from simulation.security_actors import (
    ADMIN,
    APP,
    BROKER,
    GUARDED,
    KNOWN_AFTER_CALM_MS,
    SESSION_MS,
    USERS,
    Access,
    AllowedWriter,
    Guard,
    Guest,
    acl,
    login,
    read_all,
)

from barnabas import Admin
from barnabas.core.cluster.layout import EntityKind
from barnabas.ports.broker_api.operations import Operation

_JAAS = f'PlainLoginModule required username="{BROKER}" password="{BROKER}-password" ' + " ".join(
    f'user_{user}="{user}-password"' for user in USERS
)
SECURED: dict[str, Any] = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_JAAS};",
    "connections.max.reauth.ms": SESSION_MS,
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": f"User:{BROKER};User:{ADMIN}",
}


class SecurityStory(ClusterStory):
    """Nothing that was denied is ever visible; nothing that was acknowledged is lost; brokers that work know a removed
    ACL after a while; a session that has ended is not served; brokers are never denied anything."""

    name = "security"

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **{**SECURED, **settings})
        self.world.sasl = login(ADMIN)

    def _checked_topics(self) -> list[str]:
        return [*super()._checked_topics(), GUARDED]

    def _begin(self, admin: Admin) -> None:
        self.access = Access(self.checker)
        admin.create_topic(GUARDED, partitions=1)
        admin.create_acls([acl(APP, TOPIC, Operation.WRITE)])
        self.world.run_until(self._all_know_the_acls)
        for broker_id in self.world.brokers:
            Guest(self.access, broker_id)
        self.world.program("guard", Guard().run, restart_after=0.5)

    def _all_know_the_acls(self) -> bool:
        nodes = [broker.node for broker in self.world.brokers.values()]
        return all(node is not None and node.state.image.entities(EntityKind.ACLS) for node in nodes)

    def _writer(self, name: str, partition: int, book: Book) -> ClusterWriter:
        if name != "writer-2":
            return super()._writer(name, partition, book)
        writer = AllowedWriter(self.world, name, partition, book, self.checker)
        writer.sasl = login(APP)
        return writer

    def _wait_until_stable(self) -> None:
        self.world.programs["guard"].cut_power()
        super()._wait_until_stable()
        access, reached = self.access, self.world.reached
        with Admin(self.world.client("founder"), default_api_timeout_ms=30_000) as admin:
            Guard.revoke(admin)
            denied = reached["acl: a request of the guest is denied"]
            access.known_after_ms = KNOWN_AFTER_CALM_MS
            self.world.run(KNOWN_AFTER_CALM_MS / 1000 + 1)
            if reached["acl: a request of the guest is denied"] == denied:
                raise Broken("liveness: no request of the guest was answered after the ACL was removed")
            Guard().grant(admin)
        before, read = len(access.accepted), access.read
        self._await("the guest writes and reads", lambda: len(access.accepted) > before and access.read > read)
        read_all(self.world, access)
