"""`barnabas mirror --identical` between two brokers: the same bytes, read-only until promoted, and the way back."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from support.command import Command
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker
from barnabas.app.clients.admin.quotas import ClientQuotaAlteration
from barnabas.app.clients.admin.users import UserScramCredentialUpsertion
from barnabas.app.mirror.identical import EPOCHS_OF_PROMOTION, IdenticalMirror
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.errors import BarnabasError, ConfigError
from barnabas.ports.values import Secret

RETENTION = "123456789"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "source") as broker:
        yield broker


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "target") as broker:
        yield broker


@pytest.fixture
def mirror(source: Broker, target: Broker) -> Iterator[IdenticalMirror]:
    with Admin(source.bootstrap) as admin:
        admin.create_topic("t", partitions=2, configs={"retention.ms": RETENTION})
    made = mirror_of(source, target)
    yield made
    made.close()


def mirror_of(source: Broker, target: Broker, *, overwrite: bool = False, timeout_ms: int = 60_000) -> IdenticalMirror:
    return IdenticalMirror(
        {"bootstrap.servers": source.bootstrap, "default.api.timeout.ms": timeout_ms},
        {"bootstrap.servers": target.bootstrap},
        topics="t.*",
        overwrite=overwrite,
    )


def produce(broker: Broker, *values: bytes, partition: int = 0) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for value in values:
        producer.produce("t", value, partition=partition, on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE_S)
    return errors


def log_of(folder: Path, name: str = "t-0") -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / name).glob("*.log")))


def test_copy_has_the_same_bytes_settings_and_group_offsets(
    mirror: IdenticalMirror, source: Broker, target: Broker, tmp_path: Path
) -> None:
    produce(source, b"a", b"b", b"c")
    produce(source, b"d", partition=1)
    with Admin(source.bootstrap) as admin, Admin(target.bootstrap) as copies:
        admin.alter_group_offsets("g", {("t", 0): 2})
        assert [each.topic for each in mirror.differences()] == ["t"]
        mirror.follow()
        mirror.copy_once()
        mirror.follow()
        for name in ("t-0", "t-1"):
            assert log_of(tmp_path / "target", name) == log_of(tmp_path / "source", name)
        assert mirror.differences() == []
        assert copies.topic_overrides("t")["retention.ms"] == RETENTION
        assert {tp.partition: found.offset for tp, found in copies.group_offsets("g").items()} == {0: 2}
        admin.alter_configs(ResourceKind.TOPIC, "t", {"retention.ms": None, "segment.bytes": "1000000"})
        mirror.follow()
        overrides = {key: value for key, value in copies.topic_overrides("t").items() if key != "mirror.source"}
        assert overrides == {"segment.bytes": "1000000"}


def test_mirror_refuses_producers_until_it_is_promoted(mirror: IdenticalMirror, source: Broker, target: Broker) -> None:
    produce(source, b"a")
    mirror.follow()
    mirror.copy_once()
    (error,) = produce(target, b"no")
    assert error is not None
    assert error.code() == KafkaError.POLICY_VIOLATION
    assert mirror.promote("t") < PATIENCE_S
    assert produce(target, b"yes") == [None]
    with Admin(target.bootstrap) as admin:
        (topic,) = admin.describe_topics(["t"])
        # A range of epochs of its own, above those of all batches of the source.
        assert topic.partitions[0].leader_epoch == EPOCHS_OF_PROMOTION
    with pytest.raises(ConfigError):
        mirror.promote("t")


def test_way_back_cuts_what_only_the_old_cluster_has(
    mirror: IdenticalMirror, source: Broker, target: Broker, tmp_path: Path
) -> None:
    produce(source, b"a", b"b")
    mirror.follow()
    mirror.copy_once()
    mirror.promote("t")
    produce(source, b"too late for the copy", b"this, too")
    produce(target, b"c")
    back = mirror_of(target, source, overwrite=True)
    try:
        back.follow()
        wait_for(lambda: back.copy_once() >= 0 and not back.differences(), PATIENCE_S)
        assert back.copied.truncations == 1
        assert log_of(tmp_path / "source") == log_of(tmp_path / "target")
        back.promote("t")
    finally:
        back.close()
    assert produce(source, b"d") == [None]


def test_overwriting_mirror_that_starts_again_leaves_a_promoted_topic_alone(
    mirror: IdenticalMirror, source: Broker, target: Broker, tmp_path: Path
) -> None:
    produce(source, b"a")
    mirror.follow()
    mirror.copy_once()
    mirror.promote("t")
    assert produce(target, b"precious") == [None]
    before = log_of(tmp_path / "target")
    with closing(mirror_of(source, target, overwrite=True)) as again:
        again.follow()
        again.copy_once()
        assert not again.partitions
    assert produce(target, b"more") == [None]
    assert log_of(tmp_path / "target").startswith(before)


def test_topic_that_is_no_mirror_is_left_alone(mirror: IdenticalMirror, source: Broker, target: Broker) -> None:
    with Admin(target.bootstrap) as admin:
        admin.create_topic("t", partitions=2)
    produce(target, b"precious")
    produce(source, b"a")
    mirror.follow()
    assert not mirror.partitions
    assert produce(target, b"more") == [None]


def test_records_that_the_source_has_deleted_are_not_copied(
    mirror: IdenticalMirror, source: Broker, target: Broker
) -> None:
    produce(source, b"a", b"b", b"c")
    with Admin(source.bootstrap) as admin:
        admin.delete_records({("t", 0): 2})
        mirror.follow()
        mirror.copy_once()
        mirror.copy_once()
        assert mirror.differences() == []
        produce(source, b"d", b"e")
        mirror.copy_once()
        admin.delete_records({("t", 0): 4})
        produce(source, b"f")
        mirror.copy_once()
        assert mirror.differences() == []


def test_open_transaction_of_the_source_is_aborted_by_the_promotion(
    mirror: IdenticalMirror, source: Broker, target: Broker
) -> None:
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    producer.flush(PATIENCE_S)
    mirror.follow()
    mirror.copy_once()
    mirror.promote("t")
    with Admin(target.bootstrap) as admin:
        (producers,) = admin.describe_producers([("t", 0)]).values()
        assert [each.current_txn_start_offset for each in producers] == [-1]
    producer.abort_transaction(PATIENCE_S)


def test_running_mirror_leaves_a_promoted_topic_alone(
    mirror: IdenticalMirror, source: Broker, target: Broker, tmp_path: Path
) -> None:
    produce(source, b"a")
    running = mirror_of(source, target, overwrite=True)
    try:
        running.follow()
        running.copy_once()
        mirror.promote("t")
        produce(target, b"b")
        produce(source, b"not for the target")
        for _ in range(2):
            running.copy_once()
            running.follow()
        assert not running.partitions
        assert b"not for the target" not in log_of(tmp_path / "target")
        assert produce(target, b"c") == [None]
    finally:
        running.close()


def test_deleted_topic_is_mirrored_again_once_it_is_recreated(
    mirror: IdenticalMirror, source: Broker, target: Broker
) -> None:
    mirror.follow()
    with Admin(source.bootstrap) as admin, Admin(target.bootstrap) as copies:
        admin.delete_topic("t")
        mirror.follow()
        assert not mirror.partitions
        assert copies.list_topics() == ["t"]
        admin.create_topic("t", partitions=2)
        produce(source, b"again")
        mirror.follow()
        mirror.copy_once()
        assert mirror.differences() == []


def test_two_mirrors_at_once_copy_each_batch_once(
    mirror: IdenticalMirror, source: Broker, target: Broker, tmp_path: Path
) -> None:
    mirror.follow()
    other = mirror_of(source, target)
    threads = [threading.Thread(target=each.run) for each in (mirror, other)]
    for thread in threads:
        thread.start()
    try:
        produce(source, *(b"%d" % number for number in range(50)))
        wait_for(lambda: log_of(tmp_path / "target") == log_of(tmp_path / "source"), PATIENCE_S)
    finally:
        for each in (mirror, other):
            each.stop()
        for thread in threads:
            thread.join()
        other.close()


def test_promotion_that_cannot_complete_leaves_the_mirror_read_only(source: Broker, target: Broker) -> None:
    with Admin(source.bootstrap) as admin:
        admin.create_topic("t")
    with closing(mirror_of(source, target, timeout_ms=1000)) as mirror:
        produce(source, b"a")
        mirror.follow()
        source.close()
        with pytest.raises(BarnabasError):
            mirror.promote("t", timeout_s=0.5)
    (error,) = produce(target, b"no")
    assert error is not None


def test_command_shows_differences_and_promotes(
    source: Broker, target: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(source.bootstrap) as admin:
        admin.create_topic("t")
    files = []
    for name, broker in (("source", source), ("target", target)):
        files += [f"--{name}-config", str(tmp_path / f"{name}.properties")]
        (tmp_path / f"{name}.properties").write_text(f"bootstrap.servers={broker.bootstrap}\n")
    barnabas = Command(capsys, *files)
    assert "t is missing" in barnabas("mirror", "--identical", "--whitelist", "t", "--dry-run").out
    assert "has no topic that matches x" in barnabas("mirror", "--identical", "--whitelist", "x", "--dry-run").err
    assert "t is promoted" in barnabas("mirror", "--identical", "--promote", "t").out
    assert produce(target, b"a") == [None]
    assert "--identical" in barnabas("mirror", "--whitelist", "t", "--dry-run", expect=2).err


def test_quotas_follow_and_users_are_reported(mirror: IdenticalMirror, source: Broker, target: Broker) -> None:
    alice, everyone = {"user": "alice"}, {"client-id": None}
    with Admin(source.bootstrap) as admin, Admin(target.bootstrap) as copies:
        limits: dict[str, float | None] = {"producer_byte_rate": 1000.0, "request_percentage": 50.0}
        admin.alter_client_quotas(
            [
                ClientQuotaAlteration(entity=alice, limits=limits),
                ClientQuotaAlteration(entity=everyone, limits={"consumer_byte_rate": 5.0}),
            ]
        )
        copies.alter_client_quotas([ClientQuotaAlteration(entity={"user": "bob"}, limits={"producer_byte_rate": 7.0})])
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user="carol", password=Secret("secret-enough"))]
        )
        assert [each.text for each in mirror.cluster_differences()] == [
            "quota consumer_byte_rate of client-id=<default> is not 5.0 in the target",
            "quota producer_byte_rate of user=alice is not 1000.0 in the target",
            "quota request_percentage of user=alice is not 50.0 in the target",
            "user carol (SCRAM-SHA-256) is missing in the target: 'barnabas users' creates it with its password, which "
            "Kafka gives to no one",
        ]
        mirror.follow()
        assert [each.text.split()[0] for each in mirror.cluster_differences()] == ["user"]
        admin.alter_client_quotas([ClientQuotaAlteration(entity=alice, limits={"producer_byte_rate": None})])
        mirror.follow()
        found = {tuple(each.entity.items()): dict(each.limits) for each in copies.describe_client_quotas()}
        assert found == {
            (("user", "alice"),): {"request_percentage": 50.0},
            (("user", "bob"),): {"producer_byte_rate": 7.0},
            (("client-id", None),): {"consumer_byte_rate": 5.0},
        }
