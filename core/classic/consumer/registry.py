"""The work of a consumer in the registries. Everything here may block, and runs one piece after the other (`Lane`)."""

from collections.abc import Callable, Collection, Mapping

from ....ports.coordination import Cancel, Coordination, SessionState
from ....ports.errors import ConfigError
from ....ports.values import frozen
from ..rebalancer import Rebalancer, own_share
from ..registry import group, layout, registries
from ..registry.group import Owned
from ..registry.layout import BrokerPartition, ClassicBroker
from ..registry.subscription import ClassicSubscription

StartOffsets = Callable[[str, BrokerPartition], int | None]
"""Returns the start offset that an application with its own offsets wants; None: see `autooffset.reset`."""

PartitionClaim = tuple[Owned, str]
"""A partition, and our thread that owns it."""


@frozen(kw_only=True)
class Survey:
    """The share of a consumer and the brokers, as read from the registries before a rebalance."""

    share: Mapping[Owned, str]
    """The partitions that it is to own: partition → thread."""
    brokers: Mapping[int, ClassicBroker]
    still_owned: bool
    """True if the owner nodes of what it owns are all there."""
    idle: tuple[str, ...] = ()
    """Threads that get nothing, as `topic thread`."""


class ConsumerRegistry:
    """One consumer's place in its group."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        group_id: str,
        consumer_id: str,
        subscription: ClassicSubscription,
        rebalancer: Rebalancer,
        report: Callable[[str], None],
        start_offsets: StartOffsets | None = None,
    ) -> None:
        self._coordination = coordination
        self._group = group_id
        self._consumer_id = consumer_id
        self._subscription = subscription
        self._rebalancer = rebalancer
        self._report = report
        self._start_offsets = start_offsets
        self._triggered: Callable[[], None] = lambda: None
        self._freed: Callable[[], None] = lambda: None
        self._watched: dict[str, Cancel] = {}
        self._cancels: list[Cancel] = []
        self._conflict: Cancel = lambda: None

    def open(
        self,
        triggered: Callable[[], None],
        freed: Callable[[], None],
        state_changed: Callable[[SessionState], None],
    ) -> None:
        """Watch what concerns the group, and register in it; the callbacks come from any thread.

        `freed` is called when what was in the way of the last claim may be gone. Raises `ConfigError`,
        `CoordinationError`; then nothing is watched.
        """
        group.check_ids(self._group, self._consumer_id)
        self._triggered = triggered
        self._freed = freed
        try:
            self._cancels.append(self._coordination.add_session_listener(state_changed))
            self._watch(layout.consumer_ids_path(self._group))
            self._watch(layout.BROKER_IDS)
            if self._subscription.topic_filter is not None:
                # A trivial filter needs no watch for names it knows; it is one watch, so every filter has it.
                self._watch(layout.BROKER_TOPICS)
            self._register()
        except BaseException:
            self.unwatch()
            raise

    def survey(self, claims: Mapping[Owned, str], *, register: bool) -> Survey:
        """Read what we are to own, and check the owner nodes of `claims`, which we own. Raises `CoordinationError`."""
        if register:
            self._register()
        names = []
        if self._subscription.topic_filter is not None:
            names = registries.read_topic_names(self._coordination, self._report)
        for topic in self._subscription.expand(names):
            path = layout.topic_path(topic)
            self._watch(path)  # before it is read: no change is missed
            for broker_id in registries.children(self._coordination, path):
                self._watch(f"{path}/{broker_id}")  # it holds the number of partitions
        view = group.read_group(self._coordination, self._group, self._consumer_id, self._report)
        if self._consumer_id not in view.consumers:
            # The node was left from an earlier life of this consumer id, and went with its session.
            self._register()
            view = group.read_group(self._coordination, self._group, self._consumer_id, self._report)
        shares = own_share(view, self._consumer_id, self._rebalancer)
        share = {
            (topic, place): thread
            for topic, threads in shares.items()
            for thread, places in threads.items()
            for place in places
        }
        return Survey(
            share=share,
            brokers=view.brokers,
            still_owned=all(self._owner(owned) == thread for owned, thread in claims.items()),
            idle=tuple(
                f"{topic} {t}" for topic, threads in shares.items() for t, places in threads.items() if not places
            ),
        )

    def give_back(self, offsets: Mapping[Owned, int], released: Collection[PartitionClaim]) -> None:
        """Commit, and release the partitions. Raises `CoordinationError`; it may be repeated."""
        self.commit_last(offsets, released)
        for owned, thread in released:
            group.release(self._coordination, self._group, {owned: thread})

    def commit_last(self, offsets: Mapping[Owned, int], claims: Collection[PartitionClaim]) -> None:
        """Write the offsets of what was ours by these claims, unless another member owns it by now: it may have been
        released before, or lost with a session. Raises `CoordinationError`."""
        for owned, offset in offsets.items():
            owner = self._owner(owned)
            if owner is None or (owned, owner) in claims:
                self.commit({owned: offset})

    def claim(self, claims: Mapping[Owned, str], starts: Mapping[Owned, int]) -> dict[Owned, int]:
        """Own these; returns where to begin, where an offset is known: as `starts` says, or as it was committed.

        0.7 reads the offsets before it claims; after it, the last commit of the owner before us is seen for sure.
        Raises `OwnershipConflict`, `CoordinationError`, and what `start_offsets` raises; some claims may stand then.
        """
        self._conflict()
        try:
            group.claim(self._coordination, self._group, claims)
        except group.OwnershipConflict as conflict:
            self._conflict = self._coordination.watch(conflict.path, self._freed)
            if registries.get(self._coordination, conflict.path) is None:
                self._freed()
            raise
        found = {owned: offset for owned, offset in starts.items() if owned in claims}
        unknown = [owned for owned in claims if owned not in found]
        if self._start_offsets is None:
            return found | group.read_offsets(self._coordination, self._group, unknown, self._report)
        for topic, place in unknown:
            offset = self._start_offsets(topic, place)
            if offset is None:
                continue
            if type(offset) is not int or offset < 0:
                raise ConfigError(f"start_offsets gave {offset!r} for {topic} {place}, which is not an offset")
            found[topic, place] = offset
        return found

    def commit(self, offsets: Mapping[Owned, int]) -> None:
        """Write the offsets. Raises `CoordinationError`."""
        group.write_offsets(self._coordination, self._group, offsets)

    def commit_owned(self, offsets: Mapping[Owned, int], claims: Mapping[Owned, str]) -> dict[Owned, int]:
        """Write the offsets of what `claims` says that we own; returns those that the next owner begins from at least.

        A session may have expired without our knowing, in a process that was stopped for a while. Asking before keeps
        us from setting back the partition's present owner; asking after shows whether the offset was there in time: the
        owner's node stood all the while, and the next owner reads the offset once it is gone.
        Raises `CoordinationError`.
        """
        ours = {owned: offset for owned, offset in offsets.items() if self._owner(owned) == claims[owned]}
        self.commit(ours)
        return {owned: offset for owned, offset in ours.items() if self._owner(owned) == claims[owned]}

    def unwatch(self) -> None:
        """End all watches and the session listener."""
        cancels = [*self._cancels, *self._watched.values(), self._conflict]
        self._cancels.clear()
        self._watched.clear()
        for cancel in cancels:
            cancel()

    def close(self) -> None:
        """Leave the group and end the session: what was ours is free at once."""
        self.unwatch()
        self._coordination.close()

    def _register(self) -> None:
        group.register_consumer(self._coordination, self._group, self._consumer_id, self._subscription)

    def _watch(self, path: str) -> None:
        if path not in self._watched:
            self._watched[path] = self._coordination.watch(path, self._triggered)

    def _owner(self, owned: Owned) -> str | None:
        node = registries.get(self._coordination, layout.owner_path(self._group, *owned))
        return None if node is None else node.data.decode(errors="replace")
