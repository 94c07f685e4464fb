"""From the wheel of an older release to this one: the data folder, the clients, and a cluster under load."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from barnabas.ports.errors import ApiError

pytestmark = [pytest.mark.slow, pytest.mark.process]

RELEASES = {
    "0.2.0": "43f944e11d9866df438ebfd3705d0a01746dfebb",
    "0.1.0": "e12aace49d2fce83c5a1b8b343f4cf93821892a5",
    "before 0.1.0": "da4ed04958e0a12954cd9987fbd76ad2bb9cc61c",
}
"""The last commit of each version. Nobody could install an earlier one but from the sources."""
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

    def tell(self, release: Installed, verb: str, name: str) -> dict[str, Any]:
        return release.run(STORY, verb, self.bootstrap, name, self.registry)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("release", RELEASES)
def test_upgrade_keeps_messages_offsets_transactions_and_schemas_of_a_data_folder(
    release: str, is_killed: bool, installed: Make, tmp_path: Path
) -> None:
    old, new = installed(release), installed("new")
    server = Server(tmp_path)
    with server.run(old, is_killed=is_killed):
        billed = {by: server.tell(each, "write", by)["billed"] for by, each in (("old", old), ("new", new))}
        before = {name: server.tell(old, "read", name) for name in billed}
        assert {name: server.tell(new, "read", name) for name in billed} == before

    with server.run(new):
        for name, numbers in billed.items():
            assert len(numbers) == 120
            assert before[name]["paid"] == [*range(30)]
            assert before[name]["table"] == {str(key): "119" for key in range(10)}
        assert {name: server.tell(new, "read", name) for name in billed} == before
        assert {name: server.tell(old, "read", name) for name in billed} == before
        for name, by in (("old", new), ("new", old)):
            resumed = server.tell(by, "resume", name)
            assert sorted(billed[name] + resumed["billed"]) == [*range(600)]
            assert resumed["paid"] == [*range(60)]
        after = {name: server.tell(new, "read", name) for name in billed}
        assert all(sorted(row[2] for row in after[name]["orders"]) == [*range(600)] for name in billed)

    with server.run(old):  # the way back
        assert {name: server.tell(old, "read", name) for name in billed} == after
    with server.run(new):
        assert {name: server.tell(new, "read", name) for name in billed} == after


class Cluster:
    """Brokers 1 to 3 on one coordination service, each of a release of its own."""

    def __init__(self, folder: Path, coordination: str) -> None:
        self.folder = folder
        self._coordination = coordination
        self.ports = free_ports(3)
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
