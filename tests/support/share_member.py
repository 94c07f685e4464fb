"""A member of a share group without threads, whose user is a test."""

from collections.abc import Callable
from typing import Any

from support.plain_cluster import ManualDriver, PlainCluster
from support.share_group_script import ShareGroupScript

from barnabas.adapters.system import SeededEntropy
from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.group.events import GroupSettings
from barnabas.core.client.share.share_consume_request_manager import (
    CommitResults,
    ShareConsumeRequestManager,
    ShareInFlightBatch,
)
from barnabas.core.client.share.share_membership import ShareMembershipManager, new_member_id
from barnabas.core.client.share.share_session_handler import ShareFetchSettings
from barnabas.core.message.codec import NO_CODECS
from barnabas.ports.broker_api.share_groups import AcknowledgeType

LOCK_MS = 30_000


class Member(ManualDriver):
    """A member without threads; the test is its user."""

    def __init__(
        self, cluster: PlainCluster, group: ShareGroupScript | None = None, *, seed: int = 1, **settings: Any
    ) -> None:
        super().__init__(cluster)
        self.entropy = SeededEntropy(seed)
        self.group = group or ShareGroupScript(cluster, lambda: self.now, lock_ms=LOCK_MS)
        self.view = ClusterView([("bootstrap", 1)], self.entropy, ViewSettings())
        member_id = new_member_id(self.entropy)
        self.on_note: Callable[[], object] = lambda: None
        self.manager = ShareConsumeRequestManager(
            self.view,
            self.entropy,
            ShareFetchSettings(group_id="g", **settings),
            NO_CODECS,
            member_id,
            self._note,
        )
        self.membership = ShareMembershipManager(
            self.view, self.entropy, GroupSettings(group_id="g"), member_id, self.manager.assign, self._note
        )
        self.parts = [self.membership, self.manager, self.view]

    def _note(self) -> None:
        self.on_note()

    def join(self, *topics: str) -> "Member":
        self.membership.subscribe(topics or ("t",), self.now)
        self.run(lambda: self.membership.settled)
        return self

    def batch(self) -> ShareInFlightBatch:
        """Return the next batch, decoded."""
        self.manager.wants = True
        self.run(lambda: bool(self.manager.ready) or bool(self.manager.failures))
        self.manager.wants = False
        batch = self.manager.next_batch(self.now)
        assert batch is not None, self.manager.failures
        while batch.decode_more():
            pass
        return batch

    def process(self, batch: ShareInFlightBatch) -> list[bytes | None]:
        """Do what a user does in implicit mode: take all messages, and ask for more."""
        batch.handed_out = batch.processed = len(batch.messages)
        self.manager.finish_batch(batch, self.now)
        return [message.value for message in batch.messages]

    def commit(self) -> CommitResults:
        answers: list[CommitResults] = []
        self.manager.commit(answers.append, self.now)
        self.run(lambda: bool(answers))
        return answers[0]

    def acknowledge(self, batch: ShareInFlightBatch, kinds: dict[int, AcknowledgeType]) -> None:
        for offset, kind in kinds.items():
            self.manager.acknowledge(batch, (offset,), kind, self.now)

    def finish(self) -> None:
        done: list[object] = []
        self.manager.finish(lambda: done.append(1), self.now)
        self.run(lambda: bool(done))
