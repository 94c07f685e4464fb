"""The tiers page of the web console: where the messages of tiered topics are, and how many are not copied yet."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console_pages import Browser, console_of
from support.waiting import wait_for

from barnabas import Admin, Broker, Producer, TopicPartition
from barnabas.console.rendering import UNKNOWN, duration
from barnabas.ports.broker_api.configs import ResourceKind

QUICK = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "8000",
    "local.retention.bytes": "16000",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}

TP = TopicPartition("old-orders", 0)
MINUTE_MS = 60_000
BEGAN_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"file://{tmp_path_factory.mktemp('remote')}"


@pytest.fixture(scope="module")
def broker(remote: str) -> Iterator[Broker]:
    config = {**QUICK, "remote.log.storage.manager.class.name": remote}
    with Broker(storage="memory", config=config) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("old-orders", partitions=2, configs=TIERED)
            admin.create_topic("plain", partitions=1)
            with Producer(running.bootstrap, linger_ms=0) as producer:
                for number in range(300):
                    time_ms = BEGAN_MS - (300 - number) * MINUTE_MS
                    producer.send("old-orders", b"%06d" % number * 20, partition=0, timestamp_ms=time_ms)
                    if number % 20 == 19:
                        producer.flush()
            wait_for(lambda: admin.list_offsets({TP: -5})[TP] > 200)  # the last closed one
            wait_for(lambda: admin.list_offsets({TP: -4})[TP] > 100)
        yield running


@pytest.fixture
def browser(broker: Broker, remote: str) -> Iterator[Browser]:
    with console_of(broker.bootstrap, remote_storage=remote) as console:
        yield console


def _cells(page: str, row: str) -> list[str]:
    """Return the texts of the cells of the row with this text in its first one."""
    found = next(each for each in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if row in each.partition("/td>")[0])
    return [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in re.findall(r"<td.*?</td>", found, re.DOTALL)]


def test_tiered_topics_are_listed_with_what_is_where(browser: Browser, broker: Broker) -> None:
    page = browser.text("/tiers")
    name, partitions, _, remote_only, both, waiting, oldest, on_disk, stored = _cells(page, "old-orders")
    assert (name, partitions) == ("old-orders", "2")
    assert int(remote_only) > 0
    assert int(remote_only) + int(both) + int(waiting) == 300
    assert re.match(r"\d+ (h|min)", oldest)
    assert on_disk.endswith("kB")
    assert stored.endswith("kB")
    assert ">plain<" not in page
    assert "only in remote storage, " in page
    assert "No tiered topic has" in browser.text("/tiers?q=none")


def test_partitions_of_a_tiered_topic_agree_with_the_offsets_of_the_cluster(browser: Browser, broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin:

        def offsets() -> tuple[int, int]:
            return admin.list_offsets({TP: -4})[TP], admin.list_offsets({TP: -5})[TP]

        before, page = offsets(), browser.text("/topics/old-orders/tiers")
        while offsets() != before:  # a segment was copied or deleted meanwhile
            before, page = offsets(), browser.text("/topics/old-orders/tiers")
    first_on_disk, last_copied = before
    cells = _cells(page, ">0<")
    assert cells[2:7] == ["0", str(first_on_disk), str(last_copied + 1), "300", str(299 - last_copied)]
    at_least_ms = (299 - last_copied) * MINUTE_MS
    at_most_ms = at_least_ms + time.time_ns() // 1_000_000 - BEGAN_MS + 1000
    assert cells[7] in map(duration, range(at_least_ms, at_most_ms, 1000))
    assert "segment" in cells[9]
    assert _cells(page, ">1<")[1:8] == ["empty", "0", "0", "0", "0", "0", ""]
    assert "ever, any number of bytes" in page
    assert "16.0 kB a partition" in page


def test_age_of_messages_that_are_not_copied_is_that_of_the_oldest(browser: Browser, broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topic("behind", partitions=2, configs={**TIERED, "segment.bytes": "1000000"})
        for hours, partition in ((3, 0), (50, 0), (2, 1)):
            producer.send(
                "behind", b"x", partition=partition, timestamp_ms=time.time_ns() // 1_000_000 - hours * 3_600_000
            )
    page = browser.text("/topics/behind/tiers")
    assert _cells(page, ">0<")[6:8] == ["2", "3 h"]
    assert _cells(page, ">1<")[6:8] == ["1", "2 h"]
    wait_for(lambda: "3 h" in _cells(browser.text("/tiers"), "behind"))
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic("behind")


def test_topic_that_is_not_tiered_says_what_to_do(browser: Browser, broker: Broker) -> None:
    assert "This topic is not tiered" in browser.text("/topics/plain/tiers")
    assert "?q=remote" in browser.text("/topics/plain/tiers")
    with console_of(broker.bootstrap, read_only=True) as reading:
        assert "?q=remote" not in reading.text("/topics/plain/tiers")


def test_console_without_the_remote_storage_says_where_bytes_come_from(broker: Broker) -> None:
    with console_of(broker.bootstrap) as browser:
        for address in ("/tiers", "/topics/old-orders/tiers"):
            assert "--remote-storage URL" in browser.text(address)
        assert _cells(browser.text("/tiers"), "old-orders")[-1] == UNKNOWN


def test_remote_storage_that_cannot_be_read_is_said_and_the_rest_is_shown(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "remote" / "an-id" / "0"
    folder.mkdir(parents=True)
    (folder / "manifest.json.gz").write_bytes(b"no manifest")
    with console_of(broker.bootstrap, remote_storage=f"file://{tmp_path}/remote") as browser:
        page = browser.text("/topics/old-orders/tiers")
        assert "manifest.json.gz" in page
        assert _cells(page, ">0<")[5] == "300"


def test_settings_of_many_topics_come_in_one_answer(broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin:
        found = admin.describe_configs_of(
            ResourceKind.TOPIC, ["old-orders", "plain", "absent"], ["remote.storage.enable", "retention.ms"]
        )
    assert found["old-orders"] == {"remote.storage.enable": "true", "retention.ms": "-1"}
    assert found["plain"]["remote.storage.enable"] == "false"
    assert "absent" not in found


def test_cluster_without_tiered_topics_says_what_a_tier_is(tmp_path: Path) -> None:
    with Broker(storage="memory") as plain, console_of(plain.bootstrap) as browser:
        assert "No topic is tiered" in browser.text("/tiers")
