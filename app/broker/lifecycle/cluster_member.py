"""A broker in a cluster: it registers, follows leaders, and elects leaders while it is the controller."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from ....core.cluster.broker_lifecycle import BrokerLifecycleManager, LastLife
from ....core.cluster.change_queue import elsewhere, on_disk
from ....core.cluster.controller import Controller, without_leader
from ....core.cluster.deltas import BrokersChanged, ConfigsChanged, ControllerChanged, Delta, StatesChanged, TopicSet
from ....core.cluster.election import (
    claimed,
    distrusted,
    is_distrusted,
    wants_claim,
)
from ....core.cluster.image import ClusterImage
from ....core.cluster.lease import Lease
from ....core.cluster.metadata_listener import MetadataListener, Refresh
from ....core.cluster.producer_ids import raise_above
from ....core.cluster.stray_replicas import has_all_records, why_orphan_is_stray, why_stray
from ....core.cluster.topic_store import read_live_topics
from ....core.cluster.topics import (
    ALONE_EPOCH,
    NO_LEADER,
    UNKNOWN_EPOCH,
    BrokerRegistration,
    PartitionState,
    ReplicaId,
    Topic,
)
from ....core.log.manager.creation import read_topic_id
from ....core.replica.partition.partition import Partition
from ....ports.broker_api.envelope import Reply
from ....ports.broker_api.epochs import (
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResult,
    OffsetForLeaderPartition,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import BarnabasError
from ....ports.metrics import Counter
from ....ports.report import counted, error
from ....ports.scheduler import Outcome, Timer
from ....ports.storage import Folder, StorageError
from ....ports.types import TopicPartition
from ..handlers.replicas import election_log_line
from ..handlers.topics import TopicService
from ..state.broker_state import BrokerState
from .replica_metrics import show_controller

HAND_OVER_STEP_MS = 20.0
RETRY_MS = 500.0
OPEN_AGAIN_MS = 30_000.0
"""The interval at which logs that could not be opened at the start are tried again."""
PATIENCE_MS = 10_000.0
"""The maximum wait of a start for partitions that only this broker can lead."""


# The search for stray replicas after a broker has registered; they are renamed, never deleted.

CHECK_AGAIN_MS = 30_000.0
"""The interval at which logs are looked at again that are assigned to others, and that these may still need."""


class StrayReplicas:
    """Renames the folders of stray replicas to *-stray. Owner thread only.

    `is_registered` returns True while the broker is registered; `report` takes lines for the broker's log.
    """

    def __init__(
        self,
        state: BrokerState,
        *,
        is_registered: Callable[[], bool],
        report: Callable[[str], None],
    ) -> None:
        self._state = state
        self._report = report
        self._needed: set[TopicPartition] = set()
        """Logs that are left alone, and were reported."""
        self._is_registered = is_registered
        self._is_due = self._is_closed = False

    def close(self) -> None:
        """Stop looking."""
        self._is_closed = True

    def check(self) -> None:
        """Look for stray replicas after a registration. Requires a tree that was not restored from a backup."""
        if self._is_due or self._is_closed or not (self._assigned_elsewhere() or self._state.logs.orphans):
            return
        self._is_due = True
        self._state.changes.submit("looking for stray replicas", self._checking, self._checked)

    def _assigned_elsewhere(self) -> list[TopicPartition]:
        """Return the partitions whose logs are open here and that belong to other brokers."""
        image, own = self._state.image, self._state.node_id
        return [
            key
            for key in self._state.logs.logs()
            if key not in self._state.replicas.partitions
            and (topic := image.topics.get(key.topic)) is not None
            and own not in topic.partitions.get(key.partition, (own,))
            and not self._state.classic.has(key.topic)
            and self._state.logs.is_labelled(key)
            and key not in self._needed
        ]

    async def _checking(self) -> None:
        state = self._state
        if not self._is_registered():
            return  # the next registration checks again
        folders = {key: state.logs.dir_of(key).folder(str(key)) for key in self._assigned_elsewhere()}
        orphans = {key: each for key, each in state.logs.orphans.items() if each.topic_id is not None}
        names = sorted({key.topic for key in (*folders, *orphans)})
        # It reads the tree as of now, which is after the registration.
        live = await elsewhere(partial(read_live_topics, state.registry.coordination, names))
        await state.registry.reread_states(sorted({key.topic for key in folders}))
        topic_ids = await on_disk(partial(_read_topic_ids, folders))
        if not self._is_registered():
            return
        for key, topic_id in topic_ids.items():
            if self._is_current(key.topic, live) and self._why_stray(key, topic_id) is not None:
                self._ask_leader(key, topic_id)
        for key, orphan in orphans.items():
            cause = why_orphan_is_stray(live.get(key.topic), orphan.topic_id)
            if cause is not None:
                state.logs.rename_orphan_to_stray(key, cause)

    def _why_stray(self, key: TopicPartition, topic_id: bytes) -> str | None:
        """Return why a log is stray by the image, if its leader has all records of it; None: it is not, or in doubt."""
        state, topic = self._state, self._state.image.topics.get(key.topic)
        if topic is None or state.logs.get(key) is None or key in state.replicas.partitions:
            return None
        return why_stray(state.image, key, topic_id, state.node_id, state.election_rules(topic))

    def _ask_leader(self, key: TopicPartition, topic_id: bytes) -> None:
        """Rename a log if the leader of its partition has all records of it."""
        state, log = self._state, self._state.logs.get(key)
        if log is None or state.ask is None:
            return
        known, latest = state.image.state(key), log.epochs.latest
        asked = OffsetForLeaderPartition(
            topic=key.topic,
            partition=key.partition,
            leader_epoch=max(0, latest),
            current_leader_epoch=known.leader_epoch,
        )

        def answered(result: object) -> None:
            cause = self._why_stray(key, topic_id)
            if self._is_closed or cause is None or not isinstance(result, OffsetForLeaderEpochResult):
                return
            (end,) = result.partitions
            if end.error is not ErrorCode.NONE or state.image.state(key).leader_epoch != known.leader_epoch:
                return
            if has_all_records(latest, log.log_end_offset, end):
                try:
                    state.logs.rename_to_stray(key, cause)
                except StorageError as error:
                    state.failed(f"renaming the folder of {key}, which is stray,", error)
            elif key not in self._needed:
                self._needed.add(key)
                path = f"{state.logs.dir_of(key).path}/{key}"
                self._report(
                    f"{path} is left alone: {cause}, but it has records that the leader, broker {known.leader}, has"
                    " not, or no longer. Delete the folder when they are not needed, while the broker is stopped"
                )

        state.ask(known.leader, OffsetForLeaderEpoch(partitions=[asked], replica_id=state.node_id), answered)

    def _is_current(self, name: str, live: Mapping[str, Topic | None]) -> bool:
        """Return True if the image has the topic as the tree has it."""
        known, stored = self._state.image.topics.get(name), live.get(name)
        return known is not None and stored is not None and known == stored.with_configs(known.configs)

    def _checked(self, error: BarnabasError | None) -> None:
        self._is_due = False
        if not self._is_closed and (error is not None or self._assigned_elsewhere()):
            self._state.scheduler.call_later(CHECK_AGAIN_MS, self.check)


def _read_topic_ids(folders: Mapping[TopicPartition, Folder]) -> Mapping[TopicPartition, bytes]:
    found: dict[TopicPartition, bytes] = {}
    for key, folder in folders.items():
        with suppress(StorageError):  # it is in doubt then, and stays
            topic_id = read_topic_id(folder, lambda _: None)
            if topic_id is not None:
                found[key] = topic_id
    return found


class ClusterMember:
    """The part of a broker in the cluster. Owner thread only.

    `ready` is called once, when this broker is registered and knows the controller; `failed` when it cannot be.

    `distrusted`: the partitions that the previous run had not distrusted yet, although the coordination service has
    lost their later states; None: all.
    """

    def __init__(
        self,
        state: BrokerState,
        topics: TopicService,
        lease: Lease,
        *,
        own: BrokerRegistration,
        last: LastLife,
        distrusted: frozenset[TopicPartition] | None,
        predecessor_ms: float,
        ready: Callable[[], None],
        failed: Callable[[BarnabasError], None],
        report: Callable[[str], None],
    ) -> None:
        self._state = state
        self._topics = topics
        self._registry = state.registry
        self._report = report
        self._ready: Callable[[], None] | None = ready
        self._queue = state.leader_changes
        self.controller = Controller(
            state.registry,
            self._queue,
            state.scheduler,
            rules=state.election_rules,
            elected=self._elected,
            report=report,
        )
        self._membership = BrokerLifecycleManager(
            state.scheduler,
            state.registry.coordination,
            self._queue,
            lease,
            own=own,
            last=last,
            note=state.logs.note_life,
            distrust=partial(state.logs.note_distrusted, None),
            registered=self._registered,
            lost=self._lost,
            failed=failed,
            predecessor_ms=predecessor_ms,
            report=report,
        )
        self._follower = MetadataListener(
            state.registry,
            state.scheduler,
            submit_leaders=self._submit,
            submit_topics=state.changes.submit,
            apply_topics=topics.apply_topics,
        )
        self._differing: Mapping[int, list[int]] = {}
        """The values of `min.insync.replicas` in the brokers' files, as they were reported last."""
        self._awaited: set[tuple[str, int]] = set()
        """The partitions that only this broker can lead; it is not ready before it does."""
        self._claims: dict[str, None] = {}
        self._claims_due = False
        self._forgotten: set[TopicPartition] = set()
        """The partitions whose states the coordination service has lost, and which are not distrusted yet."""
        self._noted_forgotten = distrusted
        """The partitions of these that the data folders contain; None: all that are here."""
        self._resumes_distrust = distrusted is None or bool(distrusted)
        self._is_noting = False
        self._stray = StrayReplicas(
            state,
            is_registered=lambda: self._membership.registration is not None,
            report=report,
        )
        self._is_closed = False
        self._balancing: Timer | None = None
        self._elections: Counter = state.metrics.counter(
            "kafka_controller_controllerstats_leaderelections_total", "Elections of leaders."
        )
        state.registry.add_went_back_listener(failed)
        state.registry.listen(self._on_delta)
        state.replicas.listen(self._opened, self._dropped)
        show_controller(state.metrics, lambda: self.controller.is_active, lambda: without_leader(state.image))

    def start(self) -> None:
        """Register, and start to follow the cluster."""
        self._follower.start_watching()
        self._check_producer_ids()
        self._membership.start()
        self._balance_in_time()
        if self._unopened():
            self._state.scheduler.call_later(OPEN_AGAIN_MS, self._open_again)

    def _check_producer_ids(self) -> None:
        """Raise the next producer id above all ids in the logs here, where the coordination service has lost them.

        Mirrors have those of another cluster, above which promotion raises it.
        """
        state = self._state
        own = (log for log in state.logs.logs().values() if not log.config.mirror_source)
        used = (max(log.producers.producers, default=-1) for log in own)
        largest = max(used, default=-1)
        if largest < 0:
            return

        async def checking() -> None:
            first = await elsewhere(partial(raise_above, state.registry.coordination, state.node_id, largest))
            if first is not None:
                text = (
                    f"a log of this broker has the producer id {largest}, which the coordination service does not know"
                )
                cure = "it was restored from a backup, or has lost its data"
                self._report(error(f"{text}: {cure}. New producers get ids from {first} on"))

        def checked(failure: BarnabasError | None) -> None:
            if failure is not None and not self._is_closed:
                state.scheduler.call_later(RETRY_MS, self._check_producer_ids)

        self._submit("checking producer ids", checking, checked)

    def _unopened(self) -> list[TopicPartition]:
        """Return the partitions that belong here and whose logs could not be opened, in data folders that work."""
        return [key for key in self._state.not_opened() if self._state.logs.is_unopened(key)]

    def _open_again(self) -> None:
        """Open logs that could not be opened at the start: a disk that was full may have room again."""
        state = self._state
        missing = self._unopened()
        if self._is_closed or not missing:
            return
        names = {key.topic for key in missing}
        for name in names:
            state.reopen_topic(state.image.topics[name])
        state.scheduler.call_later(OPEN_AGAIN_MS, self._open_again)

    def _balance_in_time(self) -> None:
        static = self._state.settings.static
        if not static.auto_leader_rebalance_enable:
            return

        def due() -> None:
            if not self._is_closed:
                self.controller.balance(static.leader_imbalance_per_broker_percentage)
                self._balance_in_time()

        self._balancing = self._state.scheduler.call_later(static.leader_imbalance_check_interval_seconds * 1000, due)

    def close(self) -> None:
        """Close it; the registration ends with the session."""
        self._is_closed = True
        self._stray.close()
        if self._balancing is not None:
            self._balancing.cancel()
        self._follower.close()
        self._state.alter_partition_manager.close()
        self.controller.close()
        self._membership.close()
        self._queue.close()

    def hand_over(self, done: Callable[[], None]) -> None:
        """Perform a controlled shutdown: move the leaderships of this broker to other replicas.

        `done` is called when that is done, or after `controlled.shutdown.max.retries` times
        `controlled.shutdown.retry.backoff.ms`.
        """
        static = self._state.settings.static
        patience_ms = static.controlled_shutdown_max_retries * static.controlled_shutdown_retry_backoff_ms
        until_ms = self._state.clock.monotonic_ms() + patience_ms

        def end() -> None:
            self._membership.end(done)

        def check_leaderships() -> None:
            left = self._led_for_others()
            if not left or self._state.clock.monotonic_ms() >= until_ms:
                if left:
                    led = counted(left, "partition is still led here", "partitions are still led here")
                    self._report(f"{led}; the others find new leaders without this one")
                end()
            else:
                self._state.scheduler.call_later(HAND_OVER_STEP_MS, check_leaderships)

        if self._led_for_others():
            self._membership.update_registration(leaving=True)
        check_leaderships()

    def _led_for_others(self) -> int:
        """Return the number of partitions that this broker leads and that another in-sync replica could lead."""
        image, own = self._state.image, self._state.node_id
        return sum(
            1
            for key in self._state.replicas.partitions
            if key[0] in image.topics
            and (state := image.state(TopicPartition(*key))).leader == own
            and any(each != own and each in image.brokers and not image.brokers[each].leaving for each in state.isr)
        )

    def offline(self, key: TopicPartition) -> None:
        """Register a replica as offline, so that another one becomes the leader."""
        self._membership.update_registration(offline=[key])

    def _opened(self, partition: Partition) -> None:
        """Report the log end of a partition that was opened, where an election waits for it.

        The partition may have been moved here while it had no leader.
        """
        own, key = self._own, partition.topic_partition
        self._membership.update_registration(gone=[key])  # where it was offline
        topic = self._state.image.topics.get(key.topic)
        replicas = () if topic is None else topic.partitions.get(key.partition, ())
        if own is None or not replicas:
            return
        if partition.is_ahead or wants_claim(self._state.image.state(key), replicas, own):
            self._claim([key.topic])

    def _dropped(self, keys: Sequence[TopicPartition]) -> None:
        if keys:
            self._membership.update_registration(gone=keys)
            self._forgotten.difference_update(keys)
            self._note_forgotten()

    # --- the session

    def _registered(self, registration: BrokerRegistration) -> None:
        state = self._state
        state.replicas.broker_epoch = registration.broker_epoch
        self._registry.apply(BrokersChanged(brokers={**state.image.brokers, registration.broker_id: registration}))
        self.controller.registered(registration)
        if self._membership.went_back:
            self._membership.went_back, self._noted_forgotten, self._resumes_distrust = False, None, True
        if self._resumes_distrust:
            self._resumes_distrust = False
            self._stray.close()  # every log may be the only complete one
            here, noted = (TopicPartition(*key) for key in state.replicas.partitions), self._noted_forgotten
            wanted = (key for key in here if noted is None or key in noted)
            self._forgotten = {key for key in wanted if self._may_be_distrusted(key)}
        self._claim(state.image.topics)
        self._membership.see(state.image.brokers.values())
        self._stray.check()
        if self._ready is not None:
            self._awaited = {key for key in state.replicas.partitions if self._waits_for_this(TopicPartition(*key))}
            state.scheduler.call_later(PATIENCE_MS, self._stop_waiting)
        self._look_if_ready()

    def _waits_for_this(self, key: TopicPartition) -> bool:
        """Return True for a partition that only this broker can lead, and that it does not lead yet."""
        own, image = self._state.node_id, self._state.image
        topic = image.topics.get(key.topic)
        if topic is None or key.partition not in topic.partitions:
            return False
        return image.state(key).members == (own,) and not self._state.replicas.partitions[key].is_leader

    def _stop_waiting(self) -> None:
        self._awaited.clear()
        self._look_if_ready()

    def _lost(self) -> None:
        """Lead no partition until a new registration succeeds."""
        self.controller.lost()
        self._state.replicas.broker_epoch = UNKNOWN_EPOCH

    def _look_if_ready(self) -> None:
        ready, registration = self._ready, self._membership.registration
        if self._awaited or self._state.image.controller is None:
            return
        if ready is not None and registration is not None:
            self._ready = None
            ready()

    def _on_delta(self, delta: Delta, before: ClusterImage) -> None:
        match delta:
            case ControllerChanged():
                self._look_if_ready()
            case BrokersChanged(brokers=brokers):
                self._membership.see(brokers.values())
                self._warn_of_differing_min_isr()
            case ConfigsChanged():
                self._warn_of_differing_min_isr()
                self._membership.update_registration(cordoned=self._state.settings.is_all_cordoned)
            case StatesChanged(topic=name, states=states):
                self._claim([name])
                if self._awaited:
                    keys = self._awaited.intersection((name, number) for number in states)
                    self._awaited.difference_update(
                        key for key in keys if not self._waits_for_this(TopicPartition(*key))
                    )
                    self._look_if_ready()
            case TopicSet(topic=topic):
                self._claim([topic.name])
                if before.topics.get(topic.name) != topic and self._does_not_fit(topic):
                    self._fit(topic.name)

    def _warn_of_differing_min_isr(self) -> None:
        if not self.controller.is_active:
            return
        differing = self._state.differing_min_isr()
        warned, self._differing = self._differing, differing
        if differing and differing != warned:
            text = ", ".join(f"{value} on {on}" for value, on in differing.items())
            self._report(
                f"min.insync.replicas differs between the brokers: {text}. Partitions keep the value that they have"
                " until the brokers of all their replicas agree; set one value for all of them with"
                " 'barnabas configs set --broker-default min.insync.replicas=N'"
            )

    def _does_not_fit(self, topic: Topic) -> bool:
        """Return True if the replicas here are not those that the topic has on this broker."""
        return bool(self._state.moved_away(topic) or self._state.not_open_yet(topic))

    def _fit(self, name: str) -> None:
        """Open the replicas that were moved to this broker, and remove those that were moved away."""

        async def fitting() -> None:
            topic = self._state.image.topics.get(name)
            if topic is not None and self._does_not_fit(topic):
                await self._topics.apply_topic(name)

        def fitted(error: BarnabasError | None) -> None:
            if error is not None and not self._is_closed:
                self._state.scheduler.call_later(RETRY_MS, lambda: self._fit(name))

        self._state.changes.submit(f"bringing topic {name} to this broker", fitting, fitted)

    def _submit(self, what: str, change: Refresh, reply: Reply[None]) -> None:
        self._state.changes.submit(what, change, reply, self._queue)

    def _elected(self, key: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        self._elections.add()
        self._report(election_log_line(key, before, after))

    # --- log end reports for partitions without a leader

    def _claim(self, names: Iterable[str]) -> None:
        """Report the log ends of replicas here where an election waits for them."""
        own = self._own
        if own is None:
            return
        for name in names:
            topic = self._state.image.topics.get(name)
            if topic is not None and self._wanted_claims(topic, self._state.image, own):
                self._claims[name] = None
        self._claim_soon()
        self._note_forgotten()

    def _claim_soon(self) -> None:
        if self._claims and not self._claims_due and not self._is_closed:
            self._claims_due = True
            self._submit(
                "reporting the local log ends of partitions without a leader", self._claiming, self._on_claims_stored
            )

    async def _claiming(self) -> None:
        self._claims_due = False
        names, self._claims = self._claims, {}
        own = self._own
        if own is None:
            return  # the next registration starts again
        try:
            changed = await self._registry.change_states(
                names, lambda topic, image: self._wanted_claims(topic, image, own)
            )
            self._report_forgotten(changed)
            self._note_forgotten()
        except BaseException:
            self._claims = {**names, **self._claims}
            raise

    def _report_forgotten(self, changed: Iterable[TopicPartition]) -> None:
        image = self._state.image
        numbers: dict[str, list[int]] = {}
        for key in changed:
            self._forgotten.discard(key)
            topic = image.topics.get(key.topic)
            if topic is not None and is_distrusted(image.state(key), topic.partitions[key.partition]):
                numbers.setdefault(key.topic, []).append(key.partition)
        for name, found in numbers.items():
            text = f"the coordination service has forgotten later states of topic {name}, partitions {found[:10]}"
            more = ", ..." if len(found) > 10 else ""
            cause = f"{text}{more}: it was restored from a backup, or has lost its data"
            cure = (
                "They get a leader with a later epoch when all their replicas have claimed what is in their logs. Start"
                " all brokers; if one is lost for good, 'barnabas cluster elect --unclean' lets the longest log lead"
            )
            self._report(error(f"{cause}. {cure}"))

    def _note_forgotten(self) -> None:
        """Write into the data folders which states are still to be distrusted, for a start after a crash."""
        if self._is_noting or self._resumes_distrust or self._is_closed:
            return
        if frozenset(self._forgotten) == self._noted_forgotten:
            return
        self._is_noting = True

        async def noting() -> frozenset[TopicPartition]:
            left = frozenset(self._forgotten)
            await on_disk(partial(self._state.logs.note_distrusted, left))
            return left

        def noted(outcome: Outcome[frozenset[TopicPartition]]) -> None:
            self._is_noting = False
            if outcome.error is None:
                self._noted_forgotten = outcome.get()
                self._note_forgotten()
            elif not self._is_closed:
                self._state.scheduler.call_later(RETRY_MS, self._note_forgotten)

        self._queue.run(noting, noted)

    def _on_claims_stored(self, error: BarnabasError | None) -> None:
        if error is not None and not self._is_closed:
            self._state.scheduler.call_later(RETRY_MS, self._claim_soon)

    def _wanted_claims(self, topic: Topic, image: ClusterImage, own: ReplicaId) -> Mapping[int, PartitionState]:
        claims = {}
        partitions = self._state.replicas.partitions
        here = [number for number in topic.partitions if (topic.name, number) in partitions]
        for number, known in image.states_in(topic, here).items():
            key = TopicPartition(topic.name, number)
            partition, replicas = partitions[key], known.replicas_in(topic.partitions[number])
            if own.broker_id not in replicas:
                continue
            if self._is_forgotten(partition, known, replicas):
                log = partition.log
                claims[number] = distrusted(known, replicas, own, log.epochs.latest, log.log_end_offset)
            elif wants_claim(known, replicas, own):
                log, in_sync = partition.log, known.broker_epochs.get(own.broker_id, UNKNOWN_EPOCH)
                lost = in_sync > ALONE_EPOCH and not self._state.logs.has_complete_log(key, in_sync)
                claims[number] = claimed(known, own, log.epochs.latest, log.log_end_offset, lost=lost)
        return claims

    def _is_forgotten(self, partition: Partition, known: PartitionState, replicas: Sequence[int]) -> bool:
        """Return True if the coordination service has lost later states of a partition than the known one."""
        if is_distrusted(known, replicas):
            self._forgotten.discard(partition.topic_partition)
            return False
        state = partition.state
        if (state.leader_epoch, state.partition_epoch) == (known.leader_epoch, known.partition_epoch):
            latest = partition.log.epochs.latest
            if partition.is_ahead or (known.leader == NO_LEADER and latest >= known.leader_epoch):
                return True
        return partition.topic_partition in self._forgotten

    def _may_be_distrusted(self, key: TopicPartition) -> bool:
        """Return False for a partition with a live leader in its present broker epoch and with a dead replica.

        Distrusted, it would have no leader as long as one of its replicas is down.
        """
        image = self._state.image
        topic, brokers = image.topics.get(key.topic), image.brokers_with(key)
        if topic is None or key.partition not in topic.partitions:
            return False
        state = image.state(key)
        leader = brokers.get(state.leader)
        is_led = leader is not None and state.broker_epochs.get(state.leader) == leader.broker_epoch
        return not is_led or all(each in brokers for each in topic.partitions[key.partition])

    @property
    def _own(self) -> ReplicaId | None:
        registration = self._membership.registration
        return None if registration is None else ReplicaId(registration.broker_id, registration.broker_epoch)
