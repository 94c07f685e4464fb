"""Contract suite for every link to a classic broker. One broker answers behind all of them."""

import struct
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from attrs import frozen

from ...core.message.batch_writer import encode_batch
from ...core.message.message import Message
from ...core.message.message_set import MessageSet
from ...plugins.builtin.codecs import builtin_codecs
from ...ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicProduce,
    ClassicProducePartition,
)
from ...ports.broker_api.envelope import BrokerLink, Caller, Request
from ...ports.broker_api.fetch import Fetch, FetchPartition
from ...ports.broker_api.metadata import Metadata
from ...ports.broker_api.offsets import EARLIEST, LATEST, ListOffsets, ListOffsetsPartition
from ...ports.broker_api.produce import Produce, ProducePartition
from ...ports.broker_api.topics import CreateTopics, NewTopic
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.transport import TransportError

ResultT = TypeVar("ResultT")
BROKER_SETTINGS = {"log.flush.interval.messages": 1, "num.partitions": 2}
"""Settings of the broker behind the link: sets are visible at once, topics have the partitions 0 and 1."""
HELLO = struct.pack(">iBBI5s", 11, 1, 0, zlib.crc32(b"hello"), b"hello")
"""A message set of one message, of magic 1 (facts A1)."""


# Contract suite for every implementation of `BrokerLink`. One broker answers behind all of them.

CODECS = builtin_codecs()
CALLER = Caller(client_id="contract")


class Unheard(Request[None]):
    """A request that no API knows."""


@frozen
class LinkHarness:
    """A link to a fresh broker, and what only its maker can do."""

    link: BrokerLink
    run_until: Callable[[Callable[[], bool]], None]
    """Let things happen until the condition holds."""
    stop_broker: Callable[[], None]


class BrokerLinkContract:
    """Inherit, and provide the fixture `harness`."""

    @pytest.fixture
    def harness(self) -> LinkHarness:
        raise NotImplementedError

    def submit(self, harness: LinkHarness, request: Request[ResultT]) -> list[Any]:
        """Submit a request; return a list that receives one result or error."""
        replies: list[Any] = []
        harness.link.submit(request, CALLER, replies.append)
        return replies

    def ask(self, harness: LinkHarness, request: Request[ResultT]) -> ResultT:
        replies = self.submit(harness, request)
        harness.run_until(lambda: bool(replies))
        assert len(replies) == 1
        assert not isinstance(replies[0], BarnabasError), replies[0]
        result: ResultT = replies[0]
        return result

    def create(self, harness: LinkHarness, name: str) -> None:
        new = NewTopic(name=name, partitions=1, replication_factor=1)
        assert self.ask(harness, CreateTopics(topics=[new])).topics[0].error is ErrorCode.NONE

    def test_what_goes_in_comes_out(self, harness: LinkHarness) -> None:
        self.create(harness, "views")
        records = encode_batch([Message(b"one", key=b"k"), Message(None, headers=(("h", b"x"),))], now_ms=5)
        produced = self.ask(harness, Produce(partitions=[ProducePartition("views", 0, memoryview(records))]))
        assert (produced.partitions[0].error, produced.partitions[0].base_offset) == (ErrorCode.NONE, 0)
        fetched = self.ask(harness, Fetch(partitions=[FetchPartition("views", 0, 0, 1 << 20)])).partitions[0]
        messages = list(MessageSet(fetched.records, CODECS))
        assert [(m.value, m.key, m.headers) for m in messages] == [(b"one", b"k", ()), (None, None, (("h", b"x"),))]
        assert fetched.high_watermark == 2
        wanted = ListOffsetsPartition(topic="views", partition=0, timestamp=LATEST)
        assert self.ask(harness, ListOffsets(partitions=[wanted])).partitions[0].offset == 2
        metadata = self.ask(harness, Metadata(topics=["views"]))
        assert [topic.name for topic in metadata.topics] == ["views"]
        assert metadata.brokers[0].port > 0

    def test_the_records_are_the_callers_again_after_submit(self, harness: LinkHarness) -> None:
        self.create(harness, "views")
        records = encode_batch([Message(b"kept")], now_ms=5)
        replies = self.submit(harness, Produce(partitions=[ProducePartition("views", 0, memoryview(records))]))
        records[:] = b"\xdd" * len(records)
        harness.run_until(lambda: bool(replies))
        fetched = self.ask(harness, Fetch(partitions=[FetchPartition("views", 0, 0, 1 << 20)])).partitions[0]
        assert [message.value for message in MessageSet(fetched.records, CODECS)] == [b"kept"]

    def test_errors_come_item_by_item(self, harness: LinkHarness) -> None:
        result = self.ask(harness, Fetch(partitions=[FetchPartition("nowhere", 0, 0, 100)], max_wait_ms=0))
        assert result.partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_an_unknown_request_is_refused_by_its_reply(self, harness: LinkHarness) -> None:
        replies = self.submit(harness, Unheard())
        harness.run_until(lambda: bool(replies))
        assert isinstance(replies[0], ApiError)
        assert replies[0].code is ErrorCode.UNSUPPORTED_VERSION

    def test_closing_answers_what_waits_and_all_that_follows(self, harness: LinkHarness) -> None:
        self.create(harness, "views")
        waiting = self.submit(
            harness, Fetch(partitions=[FetchPartition("views", 0, 0, 100)], max_wait_ms=600_000, min_bytes=1)
        )
        harness.link.close()
        harness.link.close()
        harness.run_until(lambda: bool(waiting))
        after = self.submit(harness, Metadata(topics=[]))
        harness.run_until(lambda: bool(after))
        assert [type(reply) for reply in (*waiting, *after)] == [TransportError, TransportError]

    def test_a_broker_that_stops_answers_or_fails_everything(self, harness: LinkHarness) -> None:
        self.create(harness, "views")
        waiting = self.submit(
            harness, Fetch(partitions=[FetchPartition("views", 0, 0, 100)], max_wait_ms=600_000, min_bytes=1)
        )
        harness.stop_broker()
        harness.run_until(lambda: bool(waiting))
        after = self.submit(harness, Metadata(topics=[]))
        harness.run_until(lambda: bool(after))
        assert len(waiting) == len(after) == 1
        assert isinstance(after[0], TransportError)


class ClassicLinkContract:
    """Inherit, and provide the fixture `harness`: a link to a fresh broker of `BROKER_SETTINGS`."""

    @pytest.fixture
    def harness(self) -> LinkHarness:
        raise NotImplementedError

    def submit(self, harness: LinkHarness, request: Request[ResultT]) -> list[Any]:
        """Submit a request; return a list that receives one result or error."""
        replies: list[Any] = []
        harness.link.submit(request, CALLER, replies.append)
        return replies

    def ask(self, harness: LinkHarness, request: Request[ResultT]) -> ResultT:
        replies = self.submit(harness, request)
        harness.run_until(lambda: bool(replies))
        assert len(replies) == 1
        assert not isinstance(replies[0], BarnabasError), replies[0]
        result: ResultT = replies[0]
        return result

    def produce(self, harness: LinkHarness, *places: tuple[str, int, bytes]) -> None:
        sets = [ClassicProducePartition(topic, number, memoryview(records)) for topic, number, records in places]
        result = self.ask(harness, ClassicProduce(partitions=sets))
        assert all(part.error is ErrorCode.NONE for part in result.partitions)

    def fetch(
        self, harness: LinkHarness, *places: tuple[str, int, int], max_bytes: int = 1 << 20
    ) -> list[tuple[ErrorCode, bytes]]:
        """(error, records) of each (topic, partition, offset)."""
        wanted = [ClassicFetchPartition(*place, max_bytes) for place in places]
        result: ClassicFetchResult = self.ask(harness, ClassicFetch(partitions=wanted))
        return [(part.error, _content(part)) for part in result.partitions]

    def fetch_until(self, harness: LinkHarness, place: tuple[str, int, int], wanted: bytes) -> None:
        """Fetch until the set is visible: there is no notification of it."""
        found: list[tuple[ErrorCode, bytes]] = []
        while found != [(ErrorCode.NONE, wanted)]:
            assert all(wanted.startswith(records) for _, records in found), found
            found = self.fetch(harness, place)

    def test_what_goes_in_comes_out(self, harness: LinkHarness) -> None:
        self.produce(harness, ("views", 0, HELLO))
        self.produce(harness, ("views", 0, HELLO + HELLO))
        self.fetch_until(harness, ("views", 0, 0), HELLO * 3)
        assert self.fetch(harness, ("views", 0, len(HELLO)), max_bytes=20) == [(ErrorCode.NONE, (HELLO + HELLO)[:20])]
        for time_ms, expected in ((LATEST, [3 * len(HELLO), 0]), (EARLIEST, [0])):
            asked = ClassicOffsets(topic="views", partition=0, time_ms=time_ms, max_offsets=5)
            assert list(self.ask(harness, asked).offsets) == expected

    def test_several_partitions_at_once_keep_their_order(self, harness: LinkHarness) -> None:
        self.produce(harness, ("b", 1, HELLO), ("a", 0, HELLO * 2), ("b", 0, HELLO * 3))
        self.fetch_until(harness, ("b", 0, 0), HELLO * 3)
        asked = [("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("b", 1, 0)]
        assert [records for _, records in self.fetch(harness, *asked)] == [HELLO * 2, HELLO * 3, b"", HELLO]

    def test_no_partitions_at_all(self, harness: LinkHarness) -> None:
        self.produce(harness)
        assert self.fetch(harness) == []

    def test_the_records_are_the_callers_again_after_submit(self, harness: LinkHarness) -> None:
        records = bytearray(HELLO)
        place = ClassicProducePartition("views", 0, memoryview(records))
        replies = self.submit(harness, ClassicProduce(partitions=[place]))
        records[:] = b"\xdd" * len(records)
        harness.run_until(lambda: bool(replies))
        self.fetch_until(harness, ("views", 0, 0), HELLO)

    def test_errors_come_item_by_item(self, harness: LinkHarness) -> None:
        self.produce(harness, ("views", 0, HELLO))
        self.fetch_until(harness, ("views", 0, 0), HELLO)
        found = self.fetch(harness, ("views", 0, 1000), ("views", 9, 0), ("views", 0, 0), ("../etc", 0, 0))
        assert [error for error, _ in found] == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ]
        assert [records for _, records in found] == [b"", b"", HELLO, b""]

    def test_an_unknown_request_is_refused_by_its_reply(self, harness: LinkHarness) -> None:
        replies = self.submit(harness, Unheard())
        harness.run_until(lambda: bool(replies))
        assert isinstance(replies[0], ApiError)
        assert replies[0].code is ErrorCode.UNSUPPORTED_VERSION

    def test_closing_answers_what_waits_and_all_that_follows(self, harness: LinkHarness) -> None:
        place = ClassicProducePartition("views", 0, memoryview(HELLO))
        requests: list[Request[Any]] = [
            ClassicProduce(partitions=[place]),
            ClassicFetch(partitions=[ClassicFetchPartition("views", 0, 0, 100)]),
            ClassicOffsets(topic="views", partition=0, time_ms=LATEST, max_offsets=1),
        ]
        waiting = [self.submit(harness, request) for request in requests]
        harness.link.close()
        harness.link.close()
        harness.run_until(lambda: all(waiting))
        after = [self.submit(harness, request) for request in requests]
        harness.run_until(lambda: all(after))
        assert [[type(reply) for reply in replies] for replies in waiting + after] == [[TransportError]] * 6

    def test_a_broker_that_stops_answers_or_fails_everything(self, harness: LinkHarness) -> None:
        request = ClassicFetch(partitions=[ClassicFetchPartition("views", 0, 0, 100)])
        waiting = self.submit(harness, request)
        harness.stop_broker()
        harness.run_until(lambda: bool(waiting))
        after = self.submit(harness, request)
        harness.run_until(lambda: bool(after))
        assert len(waiting) == len(after) == 1
        assert isinstance(after[0], TransportError)


def _content(part: ClassicFetchResultPartition) -> bytes:
    records = part.records
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()
