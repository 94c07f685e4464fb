"""`barnabas mirror --exactly-once`: through kills, fenced mirrors and aborted transactions of the source."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.process import COMMAND
from support.waiting import wait_for

from barnabas import Admin, Broker, Consumer, Message, Producer
from barnabas.app.mirror import MirrorMaker, layout, sources
from barnabas.app.mirror.sources import AssignedReader, AssignedSource
from barnabas.app.mirror.taken import Taken
from barnabas.core.classic.registry.topic_filter import TopicFilter
from barnabas.core.client.consumer.subscription_state import AtOffset
from barnabas.core.client.errors import ProducerFenced
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition

MESSAGES = 3000


def broker() -> Broker:
    return Broker(storage="memory", transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1)


def committed(bootstrap: str, topic: str = "views") -> list[Message]:
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(topic, position="earliest")
        return list(consumer.messages(stop_at_end=True))


def fill(source: Broker, count: int = MESSAGES, partitions: int = 3) -> list[bytes]:
    values = [b"%06d" % number for number in range(count)]
    with Admin(source) as admin, Producer(source) as producer:
        admin.create_topic("views", partitions=partitions)
        producer.send_many("views", [Message(value, key=b"k%d" % (int(value) % 50)) for value in values])
    return values


@contextmanager
def mirroring(source: Broker, target: Broker, copied: int = 0, **settings: Any) -> Iterator[MirrorMaker]:
    configs = {"bootstrap.servers": source.bootstrap, "group.id": "copy"}
    to = {"bootstrap.servers": target.bootstrap}
    with MirrorMaker([configs], to, whitelist="views", exactly_once=True, **settings) as mirror:
        yield mirror
        wait_for(lambda: mirror.copied >= copied or mirror.wait(0))


def test_exactly_once_mirror_commits_messages_with_offsets_and_resumes() -> None:
    with broker() as source, broker() as target:
        values = fill(source)
        with mirroring(source, target, MESSAGES, streams=2):
            pass
        with Producer(source) as producer:
            producer.send_many("views", [b"more-%d" % number for number in range(100)])
        with mirroring(source, target, 100, streams=1) as mirror:
            pass
        assert mirror.copied == 100
        found = committed(target.bootstrap)
        assert Counter(message.value for message in found) == Counter([*values, *(b"more-%d" % n for n in range(100))])
        assert {m.value: m.partition for m in found} == {m.value: m.partition for m in committed(source.bootstrap)}
        with Admin(target) as admin, Admin(source) as origin:
            offsets_of_copy = {tp: each.offset for tp, each in admin.group_offsets("copy").items()}
            ends = origin.list_offsets({TopicPartition("views", n): "latest" for n in range(3)})
            assert offsets_of_copy == ends
            assert len(admin.describe_topics(["views"])[0].partitions) == 3


def test_mirror_does_not_copy_aborted_messages() -> None:
    with broker() as source, broker() as target:
        with Producer(source, transactional_id="writer") as producer:
            with producer.transaction():
                producer.send("views", b"kept")
            producer.begin_transaction()
            producer.send("views", b"dropped")
            producer.flush()
            producer.abort_transaction()
        with mirroring(source, target, 1):
            pass
        assert [message.value for message in committed(target.bootstrap)] == [b"kept"]


def test_a_second_mirror_of_the_group_fences_the_first() -> None:
    with broker() as source, broker() as target:
        fill(source, 10, partitions=1)
        with pytest.raises(ProducerFenced, match="another producer"), mirroring(source, target) as first:
            wait_for(lambda: first.copied == 10)
            with mirroring(source, target), Producer(source) as producer:
                producer.send("views", b"new")
                first.wait()
        assert len(committed(target.bootstrap)) == 11


def test_streams_of_an_earlier_run_are_fenced_though_there_are_fewer_now() -> None:
    with broker() as source, broker() as target:
        fill(source, 10)
        with Producer(target, transactional_id="barnabas-mirror-copy-1") as old:
            old.begin_transaction()
            old.send("views", b"of a mirror that is thought dead")
            old.flush()
            with mirroring(source, target, 10, streams=1):
                pass
            with pytest.raises(ApiError):
                old.commit_transaction()
        assert len(committed(target.bootstrap)) == 10


@pytest.mark.slow
def test_exactly_once_mirror_copies_each_message_once_despite_kills(tmp_path: Path) -> None:
    with broker() as source, broker() as target:
        values = fill(source, 20_000)
        (tmp_path / "source.properties").write_text(
            f"bootstrap.servers={source.bootstrap}\ngroup.id=copy\nmax.poll.records=200\n"
        )
        (tmp_path / "target.properties").write_text(f"bootstrap.servers={target.bootstrap}\n")
        words = [str(COMMAND), "mirror", "--exactly-once", "--whitelist", "views", "--num-streams", "2"]
        words += ["--consumer-config", str(tmp_path / "source.properties")]
        words += ["--producer-config", str(tmp_path / "target.properties")]

        def copied() -> int:
            with Admin(target) as admin:
                return sum(each.offset for each in admin.group_offsets("copy").values())

        for _ in range(4):
            before = copied()
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as mirror:
                wait_for(lambda: copied() > before)  # noqa: B023  waited for at once
                mirror.kill()
        with mirroring(source, target, streams=2):
            wait_for(lambda: copied() >= len(values))
        found = committed(target.bootstrap)
        assert Counter(message.value for message in found) == Counter(values)


# --- topics that are deleted while it runs


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks often for what has changed."""
    monkeypatch.setattr(sources, "TOPICS_REFRESH_S", 0.05)
    monkeypatch.setattr(layout, "CHECK_WAIT_S", 0.1)


@contextmanager
def two_topics(
    source: Broker, target: Broker, **settings: Any
) -> Iterator[tuple[MirrorMaker, Callable[..., None], list[str]]]:
    """A mirror of "goes" and "stays" that has copied what they had; how to have more copied; what it said."""
    configs, to = {"bootstrap.servers": source.bootstrap, "group.id": "copy"}, {"bootstrap.servers": target.bootstrap}
    said: list[str] = []
    with Admin(source) as admin, Producer(source, allow_auto_create_topics=False) as producer:
        for topic in ("goes", "stays"):
            admin.create_topic(topic, partitions=2)
        with MirrorMaker(
            [configs], to, whitelist="goes|stays", exactly_once=True, streams=2, report=said.append, **settings
        ) as mirror:

            def send(**values: list[bytes]) -> None:
                wanted = mirror.copied + sum(map(len, values.values()))
                for topic, several in values.items():
                    for number, value in enumerate(several):
                        producer.send(topic, value, partition=number % 2)
                producer.flush()
                wait_for(lambda: mirror.copied >= wanted or mirror.wait(0))

            send(goes=numbered(b"g", 10), stays=numbered(b"s", 10))
            yield mirror, send, said


def numbered(name: bytes, count: int) -> list[bytes]:
    return [b"%s-%d" % (name, number) for number in range(count)]


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(message.value or b"" for message in committed(bootstrap, topic))


def all_of(count: int, *names: bytes) -> list[bytes]:
    return sorted(value for name in names for value in numbered(name, count))


@pytest.mark.parametrize("count", [4, 30], ids=["shorter", "longer"])
def test_a_topic_of_the_source_that_is_made_again_is_copied_from_its_beginning(quick: None, count: int) -> None:
    with broker() as source, broker() as target, two_topics(source, target) as (_, send, _said):
        with Admin(source) as admin:
            admin.delete_topics(["goes"])
            send(stays=numbered(b"t", 10))
            admin.create_topic("goes", partitions=2)
            send(goes=numbered(b"new", count), stays=numbered(b"u", 10))
        assert values_of(target.bootstrap, "goes") == sorted(numbered(b"g", 10) + numbered(b"new", count))
        assert values_of(target.bootstrap, "stays") == all_of(10, b"s", b"t", b"u")


def test_a_topic_of_the_source_that_was_made_again_while_no_mirror_ran() -> None:
    with broker() as source, broker() as target:
        fill(source, 30)
        with mirroring(source, target, 30):
            pass
        with Admin(source) as admin:
            admin.delete_topics(["views"])
        fill(source, 60)
        with mirroring(source, target, 60):
            pass
        assert len(committed(target.bootstrap)) == 90


def test_topics_may_all_go_and_others_come(quick: None, caplog: pytest.LogCaptureFixture) -> None:
    def observed() -> str:
        return "".join(text for text in caplog.messages if text.startswith("mirror: deleted at "))

    with broker() as source, broker() as target, two_topics(source, target) as (_, send, said):
        with Admin(source) as admin:
            admin.delete_topics(["goes", "stays"])
            wait_for(lambda: "goes" in observed() and "stays" in observed())
            admin.create_topic("stays", partitions=2)
            send(stays=numbered(b"new", 4))
        assert values_of(target.bootstrap, "stays") == sorted(numbered(b"s", 10) + numbered(b"new", 4))
        assert not [text for text in said if "at least one partition" in text]


@pytest.mark.parametrize("source_too", [False, True])
def test_a_topic_of_the_target_that_is_deleted_is_made_again(
    quick: None, caplog: pytest.LogCaptureFixture, source_too: bool
) -> None:
    line = "mirror: topic goes no longer exists at the target; it is created again, for new messages"
    with broker() as source, broker() as target, two_topics(source, target) as (mirror, send, _):
        with Admin(target) as admin:
            admin.delete_topics(["goes"])
            send(stays=numbered(b"t", 10), goes=numbered(b"new", 10))
            assert len(admin.describe_topics(["goes"])[0].partitions) == 2
        if source_too:
            with Admin(source) as admin:
                admin.delete_topics(["goes"])
            send(stays=numbered(b"u", 10))
        assert not mirror.wait(0)
        assert values_of(target.bootstrap, "goes") == all_of(10, b"new")
        assert values_of(target.bootstrap, "stays") == all_of(10, *((b"s", b"t", b"u") if source_too else (b"s", b"t")))
        assert caplog.messages.count(line) == 1


def test_messages_carry_the_id_of_a_topic_made_again_that_begins_behind_the_last_position(quick: None) -> None:
    """By its offsets alone it could be the topic that was read before."""

    class Source(AssignedSource):
        def start_of(self, topic_partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, AtOffset]:
            return {}

        def commit(self, offsets: object) -> None:
            """Nothing is kept."""

    def read(reader: AssignedReader) -> list[Taken]:
        taken: list[Taken] = []

        def has_two() -> bool:
            taken.extend(reader.poll_messages(100, 0.05))
            return len(taken) >= 2

        wait_for(has_two)
        return taken

    with broker() as source, Admin(source) as admin, Producer(source, allow_auto_create_topics=False) as producer:
        admin.create_topic("views", partitions=1)
        producer.send_many("views", [b"old"] * 2).result()
        reading = Source({"bootstrap.servers": source.bootstrap}, TopicFilter.whitelist("views"))
        (reader,) = reading.open(1)
        assert isinstance(reader, AssignedReader)
        try:
            old = read(reader)
            admin.delete_topics(["views"])
            admin.create_topic("views", partitions=1)
            producer.send_many("views", [b"new"] * 6).result()
            admin.delete_records({TopicPartition("views", 0): 4})
            new = read(reader)
        finally:
            reading.close()
        assert [taken.next_offset for taken in old + new] == [1, 2, 5, 6]
        assert {taken.topic_id for taken in new} == {admin.describe_topics(["views"])[0].topic_id}


def test_a_partition_stays_in_the_same_stream_whatever_topics_there_are() -> None:
    everything = [TopicPartition(topic, number) for topic in ("a", "b", "c") for number in range(7)]
    fewer = [tp for tp in everything if tp.topic != "a"]

    class Source:
        def consumer(self) -> None:
            """Provide no consumer: the assignment needs none."""

    readers = [AssignedReader(Source(), number, 3) for number in range(3)]  # type: ignore[arg-type]
    of = {tp: [reader for reader in readers if reader._falls_here(tp)] for tp in everything}
    assert all(len(each) == 1 for each in of.values())
    assert all(len({of[tp][0] for tp in fewer if tp.topic == topic}) == 3 for topic in ("b", "c"))


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ({"zk.connect": "a:2181", "groupid": "g"}, {"bootstrap.servers": "b:1"}, "needs bootstrap.servers"),
        ({"bootstrap.servers": "a:1", "group.id": "g"}, {"broker.list": "0:b:1"}, "needs bootstrap.servers"),
        ({"bootstrap.servers": "a:1", "offsets.file": "f"}, {"bootstrap.servers": "b:1"}, "group.id"),
    ],
)
def test_mirror_refuses_topics_that_it_cannot_copy_exactly_once(
    source: dict[str, str], target: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        MirrorMaker([source], target, whitelist="views", exactly_once=True)


def test_sources_need_groups_of_their_own() -> None:
    source = {"bootstrap.servers": "a:1", "group.id": "g"}
    with pytest.raises(ConfigError, match=r"different group\.id"):
        MirrorMaker([source, dict(source)], {"bootstrap.servers": "b:1"}, whitelist="views", exactly_once=True)
