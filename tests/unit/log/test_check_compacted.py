"""The results of compaction are no damage: gaps between and inside of segments, batches without records, old files."""

import random

import pytest
from attrs import evolve
from support.cleaned_log import COMPACT, CleanedLogs

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.logtools.verify.data_folder import CheckContext, DataFolderCheck
from barnabas.core.logtools.verify.findings import Finding, problems
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message

IN_TRANSACTIONS = 3
"""A producer."""


def fill(logs: CleanedLogs, chance: random.Random) -> None:
    sequences = dict.fromkeys((1, 2, IN_TRANSACTIONS), 0)
    for step in range(chance.randint(10, 80)):
        producer = chance.choice([None, None, *sequences])
        count = chance.randint(1, 4)
        messages = [
            Message(b"%d" % step, key=b"k%d" % chance.randint(0, 5), timestamp_ms=1000 + step) for _ in range(count)
        ]
        if producer is None:
            records, origin = encode_batch(messages, now_ms=0), AppendOrigin.CLIENT
        else:
            transactional = producer == IN_TRANSACTIONS
            origin = AppendOrigin.TRANSACTION if transactional else AppendOrigin.CLIENT
            records = encode_batch(
                messages,
                now_ms=0,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                transactional=transactional,
            )
            sequences[producer] += count
        now_ms = logs.clock.now_ms()
        logs.log.append(memoryview(bytearray(records)), leader_epoch=0, now_ms=now_ms, origin=origin)
        if producer == IN_TRANSACTIONS:
            logs.log.append_marker(producer, 0, chance.random() < 0.5, 0, leader_epoch=0, now_ms=now_ms)
        if chance.random() < 0.1:
            logs.clean()
    logs.clean()


def check(logs: CleanedLogs) -> list[Finding]:
    logs.disk.in_use = False
    log_dir = MemoryLogDir(logs.disk)
    log_dir.root.write_small(".lock", b"")
    try:
        return problems(DataFolderCheck(log_dir, CheckContext()).check().findings)
    finally:
        log_dir.close()


@pytest.mark.parametrize("seed", range(24))
def test_a_compacted_log(seed: int) -> None:
    chance = random.Random(seed)
    logs = CleanedLogs(evolve(COMPACT, delete_retention_ms=chance.choice([0, 10**9])))
    fill(logs, chance)
    assert any(name.endswith(".deleted") for name in logs.disk.folders["t-0"]), "something was compacted"
    if chance.random() < 0.5:
        logs.stop()
    else:
        logs.kill()
    assert check(logs) == []


def test_damage_in_a_compacted_log_is_reported() -> None:
    logs = CleanedLogs()
    fill(logs, random.Random(1))
    logs.stop()
    largest = max(
        (content for name, content in logs.disk.folders["t-0"].items() if name.endswith(".log")),
        key=lambda content: len(content.data),
    )
    largest.data[70] ^= 1
    assert "batch-damaged" in {finding.kind for finding in check(logs)}
