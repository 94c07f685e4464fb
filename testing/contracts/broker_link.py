"""Contract suite for every implementation of `BrokerLink`. One broker answers behind all of them."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from attrs import frozen

from ...core.message.batch_writer import encode_batch
from ...core.message.message import Message
from ...core.message.message_set import MessageSet
from ...plugins.builtin.codecs import builtin_codecs
from ...ports.broker_api.envelope import BrokerLink, Caller, Request
from ...ports.broker_api.fetch import Fetch, FetchPartition
from ...ports.broker_api.metadata import Metadata
from ...ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from ...ports.broker_api.produce import Produce, ProducePartition
from ...ports.broker_api.topics import CreateTopics, NewTopic
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.transport import TransportError

ResultT = TypeVar("ResultT")
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
        """The list gets what is replied: one result or error."""
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
