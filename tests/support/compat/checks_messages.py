"""The checks of producing, and of consuming without a group."""

from collections.abc import Callable, Sequence

from support.waiting import wait_for

from .model import PATIENCE_S, Client, Record, Sending, Start
from .world import World

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ACKS = ["0", "1", "all"]
COUNT = 20


def records_of(what: str, count: int = COUNT) -> list[Record]:
    """Values that are worth compressing, each another."""
    return [Record(value=f"{what} {number} ".encode() * 20) for number in range(count)]


def tried(attempts: dict[str, Callable[[], None]]) -> None:
    """All of them; those that fail are named together."""
    failed: dict[str, BaseException] = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except Exception as error:  # noqa: BLE001  reported below
            failed[name] = error
    if failed:
        reasons = "; ".join(f"{name}: {error!r}" for name, error in failed.items())
        raise AssertionError(reasons) from next(iter(failed.values()))


def check_produce(world: World, client: Client) -> None:
    """Every codec and every acks."""

    def attempt(codec: str, acks: str) -> None:
        topic, records = world.topic(), records_of(f"{codec}-{acks}")
        client.produce(topic, records, Sending(codec=codec, acks=acks))
        wait_for(lambda: world.end(topic) >= COUNT, PATIENCE_S)
        assert contents(world.stored(topic)) == contents(records)

    tried({f"{codec}, acks={acks}": lambda c=codec, a=acks: attempt(c, a) for codec in CODECS for acks in ACKS})  # type: ignore[misc]  # of a lambda with defaults


def check_compression(world: World, client: Client) -> None:
    """The broker keeps the batches as the producer made them."""

    def attempt(codec: str) -> None:
        topic = world.topic()
        client.produce(topic, records_of(codec), Sending(codec=codec))
        assert {header.codec_id for header in world.batches(topic)} == {CODECS[codec]}

    tried({codec: lambda c=codec: attempt(c) for codec in CODECS})  # type: ignore[misc]  # of a lambda with defaults


def check_idempotent(world: World, client: Client) -> None:
    topic, records = world.topic(), records_of("once")
    client.produce(topic, records, Sending(idempotent=True))
    assert all(header.producer_id >= 0 for header in world.batches(topic))
    assert contents(world.stored(topic)) == contents(records)


def check_assigned(world: World, client: Client) -> None:
    """From partition 1 of 2, from the middle, batches of every codec."""
    topic, expected = world.topic(2), []
    for codec in CODECS:
        records = records_of(codec)
        world.send(topic, records, partition=1, codec=codec)
        expected += records
    found = client.read(topic, len(expected) - 5, Start(partition=1, offset=5))
    assert contents(found) == contents(expected[5:])
    assert [record.offset for record in found] == list(range(5, len(expected)))


def check_headers(world: World, client: Client) -> None:
    topic = world.topic()
    record = Record(value=b"v", key=b"k", headers=(("a", b"1"), ("b", b"two")))
    client.produce(topic, [record])
    assert contents(world.stored(topic)) == contents([record])
    assert contents(client.read(topic, 1)) == contents([record])


def check_nulls(world: World, client: Client) -> None:
    topic = world.topic()
    records = [Record(value=b"v"), Record(value=None, key=b"k"), Record(value=b"v", key=b"k")]
    for record in records:
        client.produce(topic, [record])
    assert contents(world.stored(topic)) == contents(records)
    assert contents(client.read(topic, len(records))) == contents(records)


def check_large(world: World, client: Client) -> None:
    """1 MB within the limits of a broker as it comes, 5 MB with raised ones."""

    def attempt(size: int, max_bytes: int, topic: str) -> None:
        record = Record(value=b"x" * size)
        client.produce(topic, [record], Sending(max_bytes=max_bytes))
        assert contents(world.stored(topic)) == contents([record])
        assert contents(client.read(topic, 1, Start(max_bytes=max_bytes))) == contents([record])

    tried(
        {
            "1 MB": lambda: attempt(1_000_000, 1_048_576, world.topic()),
            "5 MB": lambda: attempt(5_000_000, 6_000_000, world.topic(max_message_bytes="6000000")),
        }
    )


TIMES = [1_000_000, 2_000_000, 3_000_000]


def timed_topic(world: World) -> str:
    topic = world.topic()
    for time in TIMES:
        world.send(topic, [Record(value=b"%d" % time, timestamp_ms=time)])
    return topic


def check_seek_by_time(world: World, client: Client) -> None:
    topic = timed_topic(world)
    assert [record.value for record in client.read(topic, 2, Start(timestamp_ms=1_500_000))] == [b"2000000", b"3000000"]


def check_offsets(world: World, client: Client) -> None:
    topic = timed_topic(world)
    assert client.offsets(topic) == (0, 3)
    assert client.offset_for_time(topic, 2_000_000) == 1


def contents(records: Sequence[Record]) -> list[tuple[object, ...]]:
    return [record.content for record in records]
