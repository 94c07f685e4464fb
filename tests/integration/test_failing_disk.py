"""One of two disks of a single broker fails: its partitions refuse records until a restart, the others continue."""

import errno
import os
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Producer, SimpleConsumer
from barnabas.adapters import storage_fs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

PARTITIONS = range(4)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Return the set of folders in which every sync fails."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("/proc shows the file of a descriptor")
    found: set[Path] = set()
    real = storage_fs.sync

    def sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if any(folder in path.parents for folder in found):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(storage_fs, "sync", sync)
    return found


def produce(bootstrap: str) -> dict[int, ErrorCode]:
    """Return the error of each partition for a message."""
    found: dict[int, ErrorCode] = {}
    with Producer(bootstrap, retries=0) as producer:
        for partition in PARTITIONS:
            try:
                producer.send("t", b"a message", partition=partition).result(PATIENCE_S)
                found[partition] = ErrorCode.NONE
            except ApiError as error:
                found[partition] = error.code
    return found


def messages_of(bootstrap: str, partition: int) -> int:
    with SimpleConsumer(bootstrap) as consumer:
        return len(list(consumer.fetch("t", partition, 0)))


def test_a_failing_disk_takes_its_partitions_and_no_others(tmp_path: Path, broken: set[Path]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    all_well = dict.fromkeys(PARTITIONS, ErrorCode.NONE)
    with Broker(one, log_dirs=f"{one},{other}") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=len(PARTITIONS), configs={"flush.messages": "1"})
        assert produce(broker.bootstrap) == all_well
        lost = {partition for partition in PARTITIONS if (one / f"t-{partition}").exists()}
        assert 0 < len(lost) < len(PARTITIONS)
        broken.add(one)
        produce(broker.bootstrap)  # a flush fails: from now on
        refused = {partition for partition, code in produce(broker.bootstrap).items() if code}
        assert refused == lost
        assert produce(broker.bootstrap)[min(lost)] is ErrorCode.KAFKA_STORAGE_ERROR
        assert messages_of(broker.bootstrap, min(lost)) >= 1, "what is there is served on"
        with Admin(broker.bootstrap) as admin:
            states = {Path(found.path): found.error for found in admin.describe_log_dirs()[1]}
        assert states == {one: ErrorCode.KAFKA_STORAGE_ERROR, other: ErrorCode.NONE}
        broken.clear()
    with Broker(one, log_dirs=f"{one},{other}") as broker:
        assert produce(broker.bootstrap) == all_well
        assert messages_of(broker.bootstrap, min(lost)) >= 2
