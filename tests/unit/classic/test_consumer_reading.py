"""The messages, start offsets and commits of a classic consumer."""

import pytest
from attrs import evolve
from support.classic_world import ClassicWorld, Member

from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.client.errors import EncodeError, NoOffset
from barnabas.core.message.classic.writer import encode_set
from barnabas.core.message.codec import Codecs
from barnabas.plugins.builtin.encoders import StringSerde
from barnabas.ports.broker_api.offsets import EARLIEST, LATEST
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError

P0 = BrokerPartition(0, 0)
P1 = BrokerPartition(0, 1)


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%05d" % number for number in range(start, stop)]


def test_reads_a_partition_in_order_and_what_comes_later(world: ClassicWorld) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 100))
    member = Member(world, "a", {"t": 1}, fetch_size=200)
    member.run_until_got(100)
    log.append(numbered(100, 150))
    member.run_until_got(150)
    assert member.values == numbered(0, 150)
    first = member.got[0]
    assert (first.topic, first.place, first.offset) == ("t", P0, 15)
    assert member.got[-1].offset == log.end


def test_partitions_go_to_the_streams_by_ranges(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 5})
    for partition in range(5):
        broker.log("t", partition).append([b"%d" % partition])
    member = Member(world, "a", {"t": 2})
    member.run_until_got(5)
    by_stream: list[list[bytes]] = [[], []]
    member.got.clear()
    for partition in range(5):
        broker.log("t", partition).append([b"%d" % partition])
    world.advance(50)
    for number, values in enumerate(by_stream):
        while (message := member.poll(number)) is not None:
            values.append(message.value)
    assert [sorted(values) for values in by_stream] == [[b"0", b"1", b"2"], [b"3", b"4"]]


def test_a_message_is_consumed_when_it_is_handed_out(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1}).log("t").append(numbered(0, 10))
    member = Member(world, "a", {"t": 1})
    world.run_until(lambda: member.poll() is not None)
    assert member.consumer.owned() == {("t", P0): 15}
    assert member.commit() == {("t", P0): 15}
    assert world.committed("t") == {P0: 15}
    assert [member.poll() is not None for _ in range(10)] == [True] * 9 + [False]
    assert member.commit() == {("t", P0): 150}


def test_consumer_resumes_at_committed_offset(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1}).log("t").append(numbered(0, 10))
    world.commit("t", P0, 60)
    member = Member(world, "a", {"t": 1})
    member.run_until_got(6)
    assert member.values == numbered(4, 10)


@pytest.mark.parametrize(("reset", "expected"), [("smallest", numbered(4, 12)), ("largest", numbered(10, 12))])
def test_begins_as_the_reset_says_where_nothing_is_committed(
    world: ClassicWorld, reset: str, expected: list[bytes]
) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 10))
    log.forget_before(60)
    member = Member(world, "a", {"t": 1}, autooffset_reset=reset)
    world.run_until(lambda: None not in member.consumer.owned().values())
    log.append(numbered(10, 12))
    member.run_until_got(len(expected))
    assert member.values == expected


def test_no_offset_and_no_reset_is_an_error_that_a_seek_heals(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1}).log("t").append(numbered(0, 3))
    member = Member(world, "a", {"t": 1}, autooffset_reset="none")
    with pytest.raises(NoOffset, match="t 0-0"):
        member.poll()
    world.advance(1000)
    assert member.poll() is None
    member.consumer.seek("t", P0, EARLIEST)
    member.run_until_got(3)


@pytest.mark.parametrize(("reset", "resumes_at"), [("smallest", 60), ("largest", 150)])
def test_out_of_range_offset_is_reset_by_policy_and_committed_at_once(
    world: ClassicWorld, reset: str, resumes_at: int
) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 10))
    log.forget_before(60)
    world.commit("t", P0, 15)
    Member(world, "a", {"t": 1}, autooffset_reset=reset, autocommit_enable=False)
    world.run_until(lambda: world.committed("t") == {P0: resumes_at}, 200)


def test_out_of_range_offset_without_reset_policy_raises_no_offset(world: ClassicWorld) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 2))
    world.commit("t", P0, 1000)
    member = Member(world, "a", {"t": 1}, autooffset_reset="none")
    world.advance(50)
    with pytest.raises(NoOffset, match="1000"):
        member.poll()


def test_messages_fetched_before_an_offset_out_of_range_are_read(world: ClassicWorld) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 10))
    member = Member(world, "a", {"t": 1}, fetch_size=30, queuedchunks_max=2)
    world.advance(100)  # four messages wait
    log.append(numbered(10, 20))
    log.forget_before(150)
    member.run_until_got(14)
    assert member.values == [*numbered(0, 4), *numbered(10, 20)]
    assert member.consumer.owned() == {("t", P0): log.end}


def test_a_fetch_grows_for_a_large_message_and_shrinks_again(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 1})
    broker.log("t").append([b"small", b"x" * 5000, b"small again", b"y" * 100])
    member = Member(world, "a", {"t": 1}, fetch_size=64, fetch_size_max=8192)
    member.run_until_got(4)
    assert [len(value) for value in member.values] == [5, 5000, 11, 100]
    world.advance(50)
    sizes = [request.partitions[0].max_bytes for request in broker.fetches]
    assert max(sizes) == 8192
    assert sizes[-1] == 64


def test_message_beyond_fetch_size_max_raises_and_can_be_skipped_by_seek(world: ClassicWorld) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    after = log.append([b"x" * 5000])
    log.append([b"next"])
    member = Member(world, "a", {"t": 1}, fetch_size=64, fetch_size_max=1000)
    world.advance(100)
    with pytest.raises(ApiError, match=r"fetch\.size\.max") as caught:
        member.poll()
    assert caught.value.code is ErrorCode.INVALID_FETCH_SIZE
    member.consumer.seek("t", P0, after)
    member.run_until_got(1)
    assert member.values == [b"next"]


def test_committed_offset_within_message_raises_api_error(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1}).log("t").append([b"\xff" * 50])
    world.commit("t", P0, 12)
    member = Member(world, "a", {"t": 1})
    world.advance(50)
    with pytest.raises(ApiError, match="seek to where one begins"):
        member.poll()


def test_a_corrupt_message_stops_its_partition_and_no_other(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 2})
    bad = broker.log("t", 0)
    bad.append(numbered(0, 3))
    bad.content[-1] ^= 1
    broker.log("t", 1).append(numbered(10, 13))
    member = Member(world, "a", {"t": 1})
    member.run_until_got(5)
    assert sorted(member.values) == [*numbered(0, 2), *numbered(10, 13)]
    assert [error.code for error in member.errors if isinstance(error, ApiError)] == [ErrorCode.CORRUPT_MESSAGE]
    bad.append(numbered(3, 5))
    broker.log("t", 1).append(numbered(13, 14))
    member.run_until_got(6)
    world.advance(200)
    member.drain()
    assert len(member.got) == 6
    assert member.consumer.owned()["t", P0] == 30
    member.consumer.seek("t", P0, 45)
    member.run_until_got(8)
    assert member.values[-2:] == numbered(3, 5)


def test_an_error_of_one_partition_reaches_the_stream_once(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 2})
    broker.errors["t", 0] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.log("t", 1).append(numbered(0, 3))
    member = Member(world, "a", {"t": 1})
    member.run_until_got(3)
    world.advance(300)
    member.drain()
    assert [str(error) for error in member.errors] == ["UNKNOWN_TOPIC_OR_PARTITION: fetch of t 0-0 from 0 at broker 0"]


def test_a_refused_request_reaches_the_stream(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 1})
    broker.refusal = ApiError(ErrorCode.UNSUPPORTED_VERSION, "no classic broker")
    member = Member(world, "a", {"t": 1})
    world.advance(50)
    with pytest.raises(ApiError, match="no classic broker"):
        member.poll()


def test_a_wrapper_that_was_begun_is_delivered_again_whole(world: ClassicWorld) -> None:
    gzip = world.codecs.by_name("gzip")
    log = world.add_broker(0, {"t": 1}).log("t")
    middle = log.append(numbered(0, 5), gzip)
    log.append(numbered(5, 10), gzip)
    member = Member(world, "a", {"t": 1})
    world.advance(50)
    for _ in range(7):
        member.poll()
    assert member.commit() == {("t", P0): middle}
    member.crash()
    again = Member(world, "a2", {"t": 1})
    again.run_until_got(5)
    assert again.values == numbered(5, 10)


def test_shallow_iteration_gives_wrappers_unopened(world: ClassicWorld) -> None:
    gzip = world.codecs.by_name("gzip")
    assert gzip is not None
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append([b"plain"])
    log.append(numbered(0, 5), gzip)
    member = Member(world, "a", {"t": 1}, shallowiterator_enable=True, decoder=StringSerde())
    member.run_until_got(2)
    assert (member.got[0].value, member.got[0].codec_id) == ("plain", 0)
    assert member.got[1].codec_id == 1
    assert gzip.decompress(member.got[1].value, 1000) == encode_set(numbered(0, 5))
    assert member.got[1].offset == log.end


def test_a_decoder_that_fails_loses_only_that_message(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1}).log("t").append([b"one", b"\xff", b"three"])
    member = Member(world, "a", {"t": 1}, decoder=StringSerde())
    member.run_until_got(2)
    assert [message.value for message in member.got] == ["one", "three"]
    assert isinstance(member.errors[0], EncodeError)


def test_seek_goes_back_at_once_and_only_there(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 2})
    broker.log("t", 0).append(numbered(0, 10))
    broker.log("t", 1).append(numbered(50, 60))
    member = Member(world, "a", {"t": 1})
    member.run_until_got(20)
    member.consumer.seek("t", P0, 75)
    assert member.consumer.owned() == {("t", P0): 75, ("t", P1): 150}
    member.run_until_got(25)
    assert member.values[20:] == numbered(5, 10)
    member.consumer.seek("t", P0, LATEST)
    broker.log("t", 0).append([b"last"])
    world.advance(100)
    assert member.drain() == []  # the end was reported after that
    with pytest.raises(ConfigError, match="not owned"):
        member.consumer.seek("t", BrokerPartition(7, 0), 0)
    with pytest.raises(ConfigError, match="not an offset"):
        member.consumer.seek("t", P0, -5)


def test_seek_forgets_what_was_fetched_and_what_is_on_its_way(world: ClassicWorld) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 100))
    member = Member(world, "a", {"t": 1}, fetch_size=60)
    world.run_until(lambda: member.poll() is not None)
    member.consumer.seek("t", P0, 15 * 90)
    member.run_until_got(11)
    assert member.values == [*numbered(0, 1), *numbered(90, 100)]


def test_a_full_stream_does_not_hold_up_another_of_the_same_broker(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"full": 1, "free": 1})
    broker.log("full").append(numbered(0, 100))
    broker.log("free").append(numbered(0, 100))
    member = Member(world, "a", {"full": 1, "free": 1}, fetch_size=30, queuedchunks_max=3)
    free = member.consumer.readers_of("free")[0]
    got = []

    def read_free() -> bool:
        while (message := free.poll()) is not None:
            got.append(message.value)
        return len(got) == 100

    world.run_until(read_free, 2000)
    asked = [p for request in broker.fetches for p in request.partitions if p.topic == "full"]
    assert len(asked) == 3  # no further fetch before a read
    member.run_until_got(100)
    assert member.values == numbered(0, 100)


def test_fetch_request_respects_max_bytes_and_rotates_partitions(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 6})
    for partition in range(6):
        broker.log("t", partition).append(numbered(0, 40))
    member = Member(world, "a", {"t": 1}, fetch_size=100, fetch_max_bytes=250, queuedchunks_max=1000)
    member.run_until_got(240)
    assert all(sum(p.max_bytes for p in request.partitions) <= 250 for request in broker.fetches)
    first = [p.partition for request in broker.fetches[:3] for p in request.partitions]
    assert sorted(first) == [0, 1, 2, 3, 4, 5]


def test_fetcher_backs_off_when_partitions_are_empty(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 2})
    Member(world, "a", {"t": 1}, fetcher_backoff_ms=1000)
    world.advance(10_000)
    assert 8 <= len(broker.fetches) <= 12


def test_a_lost_connection_is_opened_again(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 1})
    broker.log("t").append(numbered(0, 5))
    member = Member(world, "a", {"t": 1})
    member.run_until_got(5)
    broker.running = False
    broker.cut()
    world.advance(5000)
    broker.running = True
    broker.log("t").append(numbered(5, 10))
    member.run_until_got(10)
    assert member.values == numbered(0, 10)
    assert sum("connecting again" in text for text in world.reports) == 1


def test_auto_commit_comes_in_its_interval_and_at_the_end(world: ClassicWorld) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 5))
    member = Member(world, "a", {"t": 1}, autocommit_interval_ms=1000)
    member.run_until_got(5)
    assert world.committed("t") == {}
    world.advance(1100)
    assert world.committed("t") == {P0: 75}
    log.append(numbered(5, 6))
    member.run_until_got(6)
    member.stop()
    assert world.committed("t") == {P0: 90}
    assert world.owners("t") == {}
    assert member.poll() is None
    assert member.readers[0].queue.ended


def test_without_auto_commit_only_the_user_commits(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1}).log("t").append(numbered(0, 5))
    member = Member(world, "a", {"t": 1}, autocommit_enable=False, autocommit_interval_ms=10)
    member.run_until_got(5)
    world.advance(1000)
    member.stop()
    assert world.committed("t") == {}


def test_chosen_offsets_are_committed_of_what_is_owned(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    member = Member(world, "a", {"t": 1})
    answers: list[object] = []
    member.consumer.commit(
        lambda outcome: answers.append(outcome.get()), {("t", P0): 30, ("t", BrokerPartition(9, 0)): 5}
    )
    world.run_until(lambda: bool(answers))
    assert answers == [{("t", P0): 30}]
    assert world.committed("t") == {P0: 30}


def test_failed_auto_commit_is_reported_once_and_retried(world: ClassicWorld) -> None:
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append(numbered(0, 5))
    member = Member(world, "a", {"t": 1}, autocommit_interval_ms=1000)
    member.run_until_got(5)
    world.tree.disconnect(member.session)
    world.advance(10_100)
    assert sum("not committed" in text for text in world.reports) == 1, "reported once"
    log.append(numbered(5, 6))
    world.tree.reconnect(member.session)
    member.run_until_got(6)
    world.advance(1100)
    assert world.committed("t") == {P0: 90}


def test_start_offsets_of_the_application_win(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 2}).log("t", 0).append(numbered(0, 10))
    world.commit("t", P0, 15)
    asked = []

    def start(topic: str, place: BrokerPartition) -> int | None:
        asked.append((topic, place))
        return 120 if place == P0 else None

    member = Member(world, "a", {"t": 1}, start_offsets=start, autocommit_enable=False)
    member.run_until_got(2)
    assert member.values == numbered(8, 10)
    assert sorted(asked) == [("t", P0), ("t", P1)]


def test_a_codec_that_fails_skips_nothing(world: ClassicWorld) -> None:
    gzip = world.codecs.by_name("gzip")
    log = world.add_broker(0, {"t": 1}).log("t")
    log.append([b"before"])
    log.append(numbered(0, 5), gzip)
    member = Member(world, "a", {"t": 1})

    class Broken:
        id, name = 1, "gzip"

        def compress(self, data: object) -> bytes:
            raise NotImplementedError

        def decompress(self, data: object, max_bytes: int) -> bytes:
            raise RuntimeError("out of order")

    good = world.codecs
    member.consumer._fetch_outside = evolve(member.consumer._fetch_outside, codecs=Codecs([Broken()]))
    for fetcher in member.consumer._fetchers.values():
        fetcher._outside = member.consumer._fetch_outside
    world.advance(20)
    with pytest.raises(RuntimeError, match="out of order"):
        for _ in range(3):
            member.poll()
    assert member.poll() is None
    for fetcher in member.consumer._fetchers.values():
        fetcher._outside = evolve(fetcher._outside, codecs=good)
    offset = member.consumer.owned()["t", P0]
    assert offset is not None
    member.consumer.seek("t", P0, offset)
    member.run_until_got(6)
    assert [value for value in member.values if value != b"before"] == numbered(0, 5)
