"""From the wheel of an older release to this one: the data folder, the clients, and a cluster under load."""

import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.etcd_server import EtcdServer
from support.ports import free_port, free_ports
from support.process import BrokerProcess
from support.secured_brokers import PARTITIONS, Load, wait_in_sync
from support.waiting import PATIENCE_S, wait_for
from support.wheels import Installed, build_wheel, copy_tree, export_commit
from support.zookeeper_server import ZookeeperServer

from barnabas import Admin
from barnabas.ports.broker_api.features import UpgradeType
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError

pytestmark = [pytest.mark.slow, pytest.mark.process]

RELEASES = {
    "0.2.0": "43f944e11d9866df438ebfd3705d0a01746dfebb",
    "0.1.0": "e12aace49d2fce83c5a1b8b343f4cf93821892a5",
    "before 0.1.0": "da4ed04958e0a12954cd9987fbd76ad2bb9cc61c",
}
"""The last commit of each version. Earlier versions can be installed from the sources only."""
LAST = "0.2.0"
STORY = Path(__file__).parents[1] / "support" / "upgrade_story.py"
SETTINGS = ("log.cleaner.backoff.ms=100", "offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3")

Make = Callable[[str], Installed]


@pytest.fixture(scope="module")
def installed(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return the environment of a release, or of this tree ("new"); each is made once."""
    made: dict[str, Installed] = {}

    def make(name: str) -> Installed:
        if name not in made:
            folder = tmp_path_factory.mktemp("release")
            if name == "new":
                source = copy_tree(checkout, folder / "source")
            else:
                source = export_commit(checkout, RELEASES[name], folder / "source")
            made[name] = Installed(folder / "environment", build_wheel(source, folder / "wheels"))
        return made[name]

    return make


class Server:
    """A broker with a schema registry, whose release changes from one start to the next."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.registry = f"127.0.0.1:{free_port()}"
        self.bootstrap = ""

    @contextmanager
    def run(self, release: Installed, *, is_killed: bool = False) -> Iterator[None]:
        broker = BrokerProcess(
            self.data, *SETTINGS, f"schema.registry.listen={self.registry}", executable=release.command
        )
        self.bootstrap = broker.bootstrap
        try:
            yield
        finally:
            if is_killed:
                broker.kill()
            else:
                assert broker.stop() == 0
        assert "Traceback" not in broker.log()

    def call(self, release: Installed, verb: str, name: str) -> dict[str, Any]:
        return release.run(STORY, verb, self.bootstrap, name, self.registry)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("release", RELEASES)
def test_upgrade_keeps_messages_offsets_transactions_and_schemas_of_a_data_folder(
    release: str, is_killed: bool, installed: Make, tmp_path: Path
) -> None:
    old, new = installed(release), installed("new")
    server = Server(tmp_path)
    with server.run(old, is_killed=is_killed):
        billed = {by: server.call(each, "write", by)["billed"] for by, each in (("old", old), ("new", new))}
        before = {name: server.call(old, "read", name) for name in billed}
        assert {name: server.call(new, "read", name) for name in billed} == before

    with server.run(new):
        for name, numbers in billed.items():
            assert len(numbers) == 120
            assert before[name]["paid"] == [*range(30)]
            assert before[name]["table"] == {str(key): "119" for key in range(10)}
        assert {name: server.call(new, "read", name) for name in billed} == before
        assert {name: server.call(old, "read", name) for name in billed} == before
        for name, by in (("old", new), ("new", old)):
            resumed = server.call(by, "resume", name)
            assert sorted(billed[name] + resumed["billed"]) == [*range(600)]
            assert resumed["paid"] == [*range(60)]
        after = {name: server.call(new, "read", name) for name in billed}
        assert all(sorted(row[2] for row in after[name]["orders"]) == [*range(600)] for name in billed)

    with server.run(old):  # the way back
        assert {name: server.call(old, "read", name) for name in billed} == after
    with server.run(new):
        assert {name: server.call(new, "read", name) for name in billed} == after


class Cluster:
    """Brokers from 1 on, on one coordination service, each of a release of its own."""

    def __init__(self, folder: Path, coordination: str, *, brokers: int = 3) -> None:
        self.folder = folder
        self._coordination = coordination
        self.ports = free_ports(brokers)
        self._running: dict[int, BrokerProcess] = {}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, number: int, release: Installed) -> None:
        settings = {
            "broker.id": str(number),
            "coordination": self._coordination,
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
            "min.insync.replicas": "2",
        }
        self._running[number] = BrokerProcess(
            self.folder / f"data-{number}",
            *(f"{key}={value}" for key, value in settings.items()),
            listen=(f"kafka://127.0.0.1:{self.ports[number - 1]}",),
            executable=release.command,
        )

    def restart(self, number: int, release: Installed) -> None:
        """Stop a broker in order, and start it by a release."""
        broker = self._running.pop(number)
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()
        self.start(number, release)

    def kill(self, number: int, release: Installed) -> None:
        """Kill a broker, and start it by a release."""
        self._running.pop(number).kill()
        self.start(number, release)

    def roll(self, release: Installed, load: Load) -> None:
        """Start each broker by a release, as docs/operations.md says; the load continues."""
        for number in (1, 2, 3):
            self.restart(number, release)
            wait_in_sync(self.bootstrap, {}, "orders", "__consumer_offsets")
            load.wait_for_more()

    def stop(self) -> None:
        for broker in self._running.values():
            broker.stop()


def rolled(cluster: Cluster, installed: Make) -> None:
    old, new = installed(LAST), installed("new")
    load = Load("orders", "billing")
    try:
        for number in (1, 2, 3):
            cluster.start(number, old)
        with Admin(cluster.bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3, PATIENCE_S)
            admin.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        load.start(cluster.bootstrap, {}, {})
        load.wait_for_more()
        for release in (new, old, new):  # there, back, and there again
            cluster.roll(release, load)
        load.finish(cluster.bootstrap, {})
        sys.stdout.write(f"longest wait for an acknowledgement, of nine restarts: {load.longest_wait_s:.2f} s\n")
    finally:
        load.abandon()
        cluster.stop()


@pytest.mark.xdist_group("etcd")
def test_rolling_upgrade_over_etcd_keeps_every_acknowledged_message_once(
    installed: Make, etcd_server: EtcdServer, tmp_path: Path
) -> None:
    rolled(Cluster(tmp_path, f"etcd://127.0.0.1:{etcd_server.port}/upgrade-{tmp_path.name}"), installed)


BROKERS = 4
"""One more than replicas."""


class Mover:
    """Moves the replicas of a topic, again and again, and notes by controllers of which release."""

    def __init__(self, bootstrap: str, topic: str, chance: random.Random) -> None:
        self._bootstrap, self._topic, self._chance = bootstrap, topic, chance
        self.rounds: Counter[bool] = Counter()
        """By whether the controller was of the new release."""

    def move(self, upgraded: Collection[int], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Move each partition to three of the brokers; cancel some moves, or move at once away and back."""
        with Admin(self._bootstrap) as admin:
            self.rounds[admin.describe_cluster().controller_id in upgraded] += 1
            before = self._assigned(admin)
            wanted = {tp: self._chance.sample(range(1, BROKERS + 1), 3) for tp in before}
            self._reassign(admin, wanted)
            meanwhile()
            some = [tp for tp in before if self._chance.random() < 0.3]
            self._reassign(admin, {tp: None for tp in some if self._chance.random() < 0.5})
            self._reassign(admin, {tp: before[tp] for tp in some})
            wait_for(lambda: not self._is_moving(admin), PATIENCE_S, pause_s=0.1)
        wait_in_sync(self._bootstrap, {}, self._topic)

    def _assigned(self, admin: Admin) -> dict[tuple[str, int], list[int]]:
        (topic,) = admin.describe_topics([self._topic])
        return {(self._topic, each.partition): list(each.replicas) for each in topic.partitions}

    def _reassign(self, admin: Admin, wanted: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        """One at a time: some are refused, as a move that has ended by then cannot be cancelled."""
        for tp, replicas in wanted.items():
            with suppress(BarnabasError):
                admin.reassign_partitions({tp: replicas})

    def _is_moving(self, admin: Admin) -> bool:
        try:
            return bool(admin.list_reassignments())
        except BarnabasError:  # the controller has just gone
            return True


def moved(cluster: Cluster, installed: Make) -> None:
    old, new = installed(LAST), installed("new")
    load, mover = Load("orders", "billing"), Mover(cluster.bootstrap, "orders", random.Random(1))
    numbers = range(1, BROKERS + 1)
    try:
        for number in numbers:
            cluster.start(number, old)
        with Admin(cluster.bootstrap) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == BROKERS, PATIENCE_S)
            admin.create_topic("orders", partitions=PARTITIONS, replication_factor=3)
        load.start(cluster.bootstrap, {}, {})
        load.wait_for_more()
        for number in (1, 2):
            mover.move((), partial(cluster.restart, number, new))
            load.wait_for_more()
        while min(mover.rounds[True], mover.rounds[False]) < 3 and mover.rounds.total() < 30:
            with Admin(cluster.bootstrap) as admin:
                controller = admin.describe_cluster().controller_id
            mover.move((1, 2))
            mover.move((1, 2), partial(cluster.kill, controller, new if controller in (1, 2) else old))
            load.wait_for_more()
        for number in (3, 4):
            mover.move((1, 2), partial(cluster.restart, number, new))
            load.wait_for_more()
        load.finish(cluster.bootstrap, {})
        assert mover.rounds[True]
        assert mover.rounds[False]
        sys.stdout.write(f"rounds by controllers of the new release: {dict(mover.rounds)}\n")
    finally:
        load.abandon()
        cluster.stop()


@pytest.mark.xdist_group("etcd")
def test_replicas_that_move_while_half_of_the_brokers_are_upgraded_lose_no_acknowledged_message_over_etcd(
    installed: Make, etcd_server: EtcdServer, tmp_path: Path
) -> None:
    coordination = f"etcd://127.0.0.1:{etcd_server.port}/moved-{tmp_path.name}"
    moved(Cluster(tmp_path, coordination, brokers=BROKERS), installed)


@pytest.mark.xdist_group("zookeeper")
def test_replicas_that_move_while_half_of_the_brokers_are_upgraded_lose_no_acknowledged_message_over_zookeeper(
    installed: Make, zookeeper_server: ZookeeperServer, tmp_path: Path
) -> None:
    coordination = f"zookeeper://127.0.0.1:{zookeeper_server.port}/moved-{tmp_path.name}"
    moved(Cluster(tmp_path, coordination, brokers=BROKERS), installed)


@pytest.mark.xdist_group("etcd")
def test_levels_of_features_wait_for_the_last_broker_and_then_keep_the_release_before_out(
    installed: Make, etcd_server: EtcdServer, tmp_path: Path
) -> None:
    old, new = installed(LAST), installed("new")
    cluster = Cluster(tmp_path, f"etcd://127.0.0.1:{etcd_server.port}/features-{tmp_path.name}")
    try:
        for number in (1, 2, 3):
            cluster.start(number, old)
        for number in (1, 2):
            cluster.restart(number, new)
        with Admin(f"127.0.0.1:{cluster.ports[0]}") as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3, PATIENCE_S)
            assert admin.describe_features(broker=1).finalized == {}
            levels = {name: each.max_version for name, each in admin.describe_features(broker=1).supported.items()}
            assert "group.version" in levels
            # The controller may be broker 3, which does not know the request.
            with pytest.raises(ApiError, match=r"Broker 3 does not support this feature|does not offer it") as caught:
                admin.update_features(levels)
            assert caught.value.code in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNSUPPORTED_VERSION)
            cluster.restart(3, new)
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3, PATIENCE_S)
            assert {broker: admin.describe_features(broker).finalized for broker in (1, 2, 3)} == {1: {}, 2: {}, 3: {}}
            admin.update_features(levels)

            def are_known() -> bool:
                known = [admin.describe_features(broker) for broker in (1, 2, 3)]
                return all(each.level(name) == level for each in known for name, level in levels.items())

            wait_for(are_known, PATIENCE_S)
            with pytest.raises(RuntimeError, match="its format version is 2, not 1"):
                cluster.restart(2, old)
            cluster.start(2, new)
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3, PATIENCE_S)
            admin.update_features(dict.fromkeys(levels, 0), UpgradeType.SAFE_DOWNGRADE)
            cluster.restart(2, old)  # the way back
            wait_for(lambda: len(admin.describe_cluster().brokers) == 3, PATIENCE_S)
    finally:
        cluster.stop()


@pytest.mark.xdist_group("zookeeper")
def test_rolling_upgrade_over_zookeeper_keeps_every_acknowledged_message_once(
    installed: Make, zookeeper_server: ZookeeperServer, tmp_path: Path
) -> None:
    rolled(Cluster(tmp_path, f"zookeeper://127.0.0.1:{zookeeper_server.port}/upgrade-{tmp_path.name}"), installed)
