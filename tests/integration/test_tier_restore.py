"""`barnabas topics restore` that is interrupted at a step: the same call continues it, and nothing is there twice."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from support.command import barnabas_here
from support.tiered_topics import QUICK, TIERED, read_all, wait_for, write

from barnabas import Admin, Broker
from barnabas.adapters.remote_folder import FolderRemoteStorage
from barnabas.app.mirror.restoring import TierRestore, read_partitions
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.tiering.manifest import topic_folder
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.mirroring import MirrorRecords
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition

WRITTEN = 300


class Killed(BaseException):
    """The command has died."""


class Steps:
    """Lets the command die before the step with this number."""

    def __init__(self, last: int) -> None:
        self._left = last

    def counting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left <= 0:
                raise Killed
            return real(*args, **kwargs)

        return counted


def remote(folder: Path) -> dict[str, object]:
    return {**QUICK, "remote.log.storage.manager.class.name": f"file://{folder}"}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> FolderRemoteStorage:
    """Return the storage of a lost cluster: partition 0 with records in segments of 8 kB, partition 1 without any."""
    folder = tmp_path_factory.mktemp("lost")
    with Broker(folder / "data", config=remote(folder / "remote")) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=2, configs=TIERED)
        write(broker.bootstrap, "t", range(WRITTEN))
        admin.alter_group_offsets("readers", {("t", 0): 100})
        wait_for(lambda: len(list((folder / "data" / "t-0").glob("*.log"))) == 1)
        wait_for(lambda: len(list((folder / "remote" / "groups").rglob("*.gz"))) == 1)
    return FolderRemoteStorage(folder / "remote")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "new", config=remote(tmp_path / "remote")) as broker:
        yield broker


def restore(target: Broker, storage: FolderRemoteStorage, steps: Steps | None = None) -> Any:
    made = TierRestore(storage, {"bootstrap.servers": target.bootstrap})
    if steps is not None:
        made._send = steps.counting(made._send)  # type: ignore[method-assign]
        for name in ("create_topic", "alter_configs", "alter_group_offsets"):
            setattr(made._admin, name, steps.counting(getattr(made._admin, name)))
    try:
        return made.restore("t", read_partitions(storage), lambda _: None)
    finally:
        made.close()


def end_of(storage: FolderRemoteStorage) -> int:
    return max(each.manifest.end for each in read_partitions(storage))


def is_killed(target: Broker, storage: FolderRemoteStorage, step: int) -> bool:
    try:
        restore(target, storage, Steps(step))
    except Killed:
        return True
    return False


@pytest.mark.parametrize("every", [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_restore_that_dies_at_a_step_is_continued(target: Broker, storage: FolderRemoteStorage, every: int) -> None:
    end, steps = end_of(storage), 0
    with Admin(target.bootstrap) as admin:
        for step in count(1 + every // 2, every):
            died = is_killed(target, storage, step)
            outcome = restore(target, storage)
            assert outcome.was_complete is not died, f"step {step}"
            if died:
                assert outcome.offsets == end, f"step {step}"
            assert read_all(target.bootstrap, "t", 0, end) == list(range(end)), f"step {step}"
            assert admin.topic_overrides("t") == {**TIERED, "remote.storage.enable": "true"}, f"step {step}"
            assert admin.group_offsets("readers")[TopicPartition("t", 0)].offset == 100, f"step {step}"
            admin.delete_topics(["t"])
            wait_for(lambda: "t" not in {each.name for each in admin.describe_topics()})
            steps = step
            if not died:
                break
    assert steps > 12, "the steps are not counted"


def test_restore_after_a_lost_answer_continues_at_the_log_end(
    target: Broker, storage: FolderRemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = end_of(storage)
    real, sent = TierRestore._send, [0]

    def twice(self: TierRestore, request: MirrorRecords, shell: Any) -> Any:
        found = real(self, request, shell)
        sent[0] += bool(request.records)
        return real(self, request, shell) if request.records and sent[0] % 2 else found

    monkeypatch.setattr(TierRestore, "_send", twice)
    outcome = restore(target, storage)
    assert sent[0] > 3
    assert read_all(target.bootstrap, "t", 0, end) == list(range(end))
    assert outcome.was_complete is False


def test_part_of_another_topic_is_not_continued(target: Broker, storage: FolderRemoteStorage) -> None:
    with Admin(target.bootstrap) as admin:
        admin.create_topic("t", partitions=2, configs={"mirror.source": "remote storage 00"})
        with pytest.raises(ConfigError, match="a part of another topic t"):
            restore(target, storage)
        admin.alter_configs(ResourceKind.TOPIC, "t", {"mirror.source": None})
        with pytest.raises(ConfigError, match="fewer messages than the store"):
            restore(target, storage)


def test_another_topic_with_as_many_messages_is_not_taken_for_the_restored_one(
    target: Broker, storage: FolderRemoteStorage
) -> None:
    with Admin(target.bootstrap) as admin:
        admin.create_topic("t", partitions=2, configs=TIERED)
        write(target.bootstrap, "t", range(1000, 1000 + WRITTEN))
        with pytest.raises(ConfigError, match=r"another topic t: .* offset 0 of t-0 .*delete the topic there"):
            restore(target, storage)


@pytest.mark.parametrize("which", ["first", "last"])
def test_topic_whose_batch_has_another_leader_epoch_is_not_taken_for_the_restored_one(
    target: Broker, storage: FolderRemoteStorage, tmp_path: Path, which: str
) -> None:
    """The CRC of a batch does not cover its leader epoch."""
    restore(target, storage)
    copytree(storage._root, tmp_path / "other")
    segments = sorted((tmp_path / "other").rglob("*.log"))
    log = segments[0 if which == "first" else -1]
    content = bytearray(log.read_bytes())
    batches = [at for at, _ in whole_batches(content)]
    at = batches[0 if which == "first" else -1]
    content[at + 12 : at + 16] = (9).to_bytes(4, "big")
    log.chmod(0o600)
    log.write_bytes(content)
    with pytest.raises(ConfigError, match="the cluster has another topic t"):
        restore(target, FolderRemoteStorage(tmp_path / "other"))


def test_restored_topic_is_complete_after_it_has_been_written_and_partly_deleted(
    target: Broker, storage: FolderRemoteStorage
) -> None:
    restore(target, storage)
    end = end_of(storage)
    with Admin(target.bootstrap) as admin:
        write(target.bootstrap, "t", range(WRITTEN))
        for start in (1, end // 2, end, end + 10):
            admin.delete_records({TopicPartition("t", 0): start})
            assert restore(target, storage).was_complete, f"the log starts at {start}"


def test_topic_that_only_shows_the_store_is_not_taken_for_a_restored_one(
    tmp_path: Path, storage: FolderRemoteStorage
) -> None:
    source = read_partitions(storage)[0].manifest.topic
    with Broker(tmp_path / "new", config=remote(storage._root)) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic(
            "t", partitions=2, configs={"remote.storage.source": topic_folder(source.name, source.topic_id)}
        )
        with pytest.raises(ConfigError, match=r"topic t of the cluster is read-only.*: delete it there"):
            restore(broker, storage)


def test_records_that_the_store_does_not_have_are_not_continued(target: Broker, storage: FolderRemoteStorage) -> None:
    """The lost cluster came back, and has another lineage since an unclean election."""
    source = f"remote storage {read_partitions(storage)[0].manifest.topic.topic_id.hex()}"
    with Admin(target.bootstrap) as admin:
        admin.create_topic("t", partitions=2)
        write(target.bootstrap, "t", range(WRITTEN * 2))
        admin.alter_configs(ResourceKind.TOPIC, "t", {"mirror.source": source})
    with pytest.raises(ConfigError, match="which is not in remote storage"):
        restore(target, storage)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///no/such/folder", "there is not a folder /no/such/folder: name that of the brokers"),
        ("/no/such/folder", "a folder is file:///no/such/folder"),
    ],
)
def test_wrong_store_is_refused_and_not_made(url: str, why: str) -> None:
    assert why in barnabas_here("log", "tier", "status", "--from", url, expect=2).stderr.decode()


def test_status_with_a_broker_shows_both_tiers_and_what_is_not_copied(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'remote'}"
    with Broker(tmp_path / "data", config=remote(tmp_path / "remote")) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=1, configs=TIERED)
        write(broker.bootstrap, "t", range(WRITTEN))
        logs = tmp_path / "data" / "t-0"
        wait_for(lambda: len(list(logs.glob("*.log"))) == 1)
        words = ("log", "tier", "status", "--from", url)
        (row,) = json.loads(barnabas_here(*words, "--bootstrap", broker.bootstrap, "--json").stdout)
        active = int(next(logs.glob("*.log")).stem)
        assert (row["local_start"], row["end"], row["log_end"]) == (active, active, WRITTEN)
        assert row["not_copied"] == WRITTEN - active > 0
        assert row["local_bytes"] == sum(each.stat().st_size for each in logs.glob("*.log"))
        assert row["waiting_ms"] > 0
        admin.create_topic("plain", partitions=1)
        header, line = barnabas_here(*words, "--bootstrap", broker.bootstrap).stdout.decode().splitlines()
        assert "NOT COPIED" in header
        assert str(WRITTEN) in line.split()
    assert "local_start" not in json.loads(barnabas_here(*words, "--json").stdout)[0]


def test_store_without_a_topic_is_named(tmp_path: Path) -> None:
    assert (
        "has no topic t"
        in barnabas_here("log", "tier", "status", "--from", f"file://{tmp_path}", "--topic", "t").stderr.decode()
    )
