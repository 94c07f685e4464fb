"""The client's end: negotiation, choice of versions, order of answers, timeouts, and the end of a connection."""

from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
from attrs import evolve
from support.kafka_pair import HandScheduler, PairConnection, PairTransport, normal
from support.kafka_sample import ID_A, ID_B
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka import KafkaLink, connect_kafka, versions
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.ports.broker_api.envelope import BrokerLink, Caller, Request
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.groups import JoinGroup
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult
from barnabas.ports.broker_api.offsets import MAX_TIMESTAMP, ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.topics import CreateTopics, DeleteTopics, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import ClosedUnanswered, Connection, ConnectionHandler, TransportError

ALL = {key: api.versions for key, api in BY_KEY.items()}
TIMEOUT_MS = 8000


class BrokerEnd:
    """The other side of a link, played by the test: it sees frames and answers with frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.connection: PairConnection | None = None
        self.react: Callable[[bytes], None] | None = None

    def accept(self, connection: Connection) -> ConnectionHandler:
        assert isinstance(connection, PairConnection)
        self.connection = connection
        return self

    def on_frame(self, content: memoryview) -> None:
        self.frames.append(bytes(content))
        if self.react is not None:
            self.react(bytes(content))

    def on_closed(self, error: TransportError | None) -> None: ...

    def answer(self, body: bytes, index: int = -1) -> None:
        """Answer the frame of this index."""
        assert self.connection is not None
        self.connection.send([self.frames[index][4:8] + body])


class Setup:
    """A link, the broker's end of it, and what was opened."""

    def __init__(self, ranges: versions.Ranges | None = None, *, negotiate: bool = True) -> None:
        self.transport = PairTransport()
        self.scheduler = HandScheduler()
        self.broker = BrokerEnd()
        self.transport._accept = self.broker.accept
        self.opened: list[KafkaLink | TransportError] = []
        connect_kafka(
            self.transport,
            self.scheduler,
            ("broker", 9092),
            client_id="me",
            request_timeout_ms=TIMEOUT_MS,
            connect_timeout_ms=1000,
            opened=self.opened.append,
        )
        self.transport.run()
        if negotiate:
            offered = ALL if ranges is None else ranges
            self.broker.answer(versions.response_body(3, [(key, *pair) for key, pair in offered.items()]))
            self.transport.run()
            assert isinstance(self.opened[0], KafkaLink)

    @property
    def link(self) -> KafkaLink:
        link = self.opened[0]
        assert isinstance(link, KafkaLink)
        return link

    def submit(self, request: Request[Any]) -> list[Any]:
        replies: list[Any] = []
        self.link.submit(request, Caller(), replies.append)
        self.transport.run()
        return replies

    def answer(self, key: int, version: int, result: Any, index: int = -1) -> None:
        api = BY_KEY[key]
        writer = api.writer(version)
        if version >= api.flexible_from:
            writer.end()
        api.result.write(writer, version, result)
        self.broker.answer(b"".join(bytes(piece) for piece in writer.pieces()), index)  # type: ignore[arg-type]  # no regions here
        self.transport.run()


def test_client_requests_api_versions_first() -> None:
    setup = Setup(negotiate=False)
    assert setup.opened == []
    (first,) = setup.broker.frames
    assert first.startswith(bytes.fromhex("0012 0003 00000001 0002 6d65 00 09") + b"barnabas")
    setup.broker.answer(versions.response_body(3, []))
    setup.transport.run()
    link: BrokerLink = setup.link
    assert setup.link.is_open
    assert setup.link.address == ("broker", 9092)
    assert setup.scheduler.waiting == 0
    link.close()


def test_client_falls_back_to_api_versions_version_of_broker() -> None:
    setup = Setup(negotiate=False)
    setup.broker.answer(bytes.fromhex("0023 00000001 0012 0000 0002"))
    setup.transport.run()
    assert setup.broker.frames[1] == bytes.fromhex("0012 0002 00000002 0002 6d65")
    setup.broker.answer(versions.response_body(2, [(3, 0, 1)]))
    setup.transport.run()
    setup.submit(Metadata(topics=None))
    assert setup.broker.frames[-1][:4] == bytes.fromhex("0003 0001")


def test_client_falls_back_to_api_versions_0_without_hint() -> None:
    setup = Setup(negotiate=False)
    setup.broker.answer(bytes.fromhex("0023 00000000"))
    setup.transport.run()
    assert setup.broker.frames[1][:4] == bytes.fromhex("0012 0000")
    setup.broker.answer(bytes.fromhex("0023 00000000"))
    setup.transport.run()
    assert isinstance(setup.opened[0], TransportError)


@pytest.mark.parametrize(
    "body", [bytes.fromhex("0000 7fffffff"), b"", bytes.fromhex("0000 00"), bytes.fromhex("002a 01 00000000 00")]
)
def test_versions_that_make_no_sense_fail_the_link(body: bytes) -> None:
    setup = Setup(negotiate=False)
    setup.broker.answer(body)
    setup.transport.run()
    (failure,) = setup.opened
    assert isinstance(failure, TransportError)
    assert "broker:9092" in str(failure)
    assert setup.scheduler.waiting == 0


def test_connect_fails_when_api_versions_response_times_out() -> None:
    setup = Setup(negotiate=False)
    setup.scheduler.advance(1001)
    (failure,) = setup.opened
    assert isinstance(failure, TransportError)
    assert "ApiVersions" in str(failure)


def test_connect_without_listener_reports_transport_error() -> None:
    opened: list[KafkaLink | TransportError] = []
    transport = PairTransport()
    connect_kafka(
        transport,
        HandScheduler(),
        ("nowhere", 1),
        client_id=None,
        request_timeout_ms=1,
        connect_timeout_ms=1,
        opened=opened.append,
    )
    transport.run()
    assert isinstance(opened[0], TransportError)


def test_a_client_id_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="client id"):
        connect_kafka(
            PairTransport(),
            HandScheduler(),
            ("broker", 1),
            client_id="x" * 40_000,
            request_timeout_ms=1,
            connect_timeout_ms=1,
            opened=lambda outcome: None,
        )


@pytest.mark.parametrize(("offered", "chosen"), [((0, 5), 5), ((0, 99), 12), ((12, 99), 12)])
def test_the_highest_common_version(offered: tuple[int, int], chosen: int) -> None:
    setup = Setup({3: offered})
    setup.submit(Metadata(topics=["a"]))
    assert setup.broker.frames[-1][:4] == pack(">hh", 3, chosen)


@pytest.mark.parametrize(
    ("ranges", "request_"),
    [
        ({}, Metadata(topics=None)),
        ({3: (13, 14)}, Metadata(topics=None)),
        ({1: (0, 3)}, SAMPLES[1].at(4).request),
        ({1: (0, 14)}, SAMPLES[1].request),
        ({3: (0, 11)}, Metadata(topics=[], topic_ids=[b"i" * 16])),
        ({3: (0, 3)}, Metadata(topics=["a"], allow_auto_topic_creation=False)),
        ({3: (0, 0)}, Metadata(topics=[])),
        (
            {2: (0, 6)},
            ListOffsets(partitions=[ListOffsetsPartition(topic="a", partition=0, timestamp=MAX_TIMESTAMP)]),
        ),
        ({19: (0, 3)}, CreateTopics(topics=[NewTopic(name="a")])),
        ({20: (0, 5)}, DeleteTopics(names=[], topic_ids=[b"i" * 16])),
    ],
)
def test_request_unsupported_by_the_broker_is_not_sent(ranges: versions.Ranges, request_: Request[Any]) -> None:
    setup = Setup(ranges)
    (error,) = setup.submit(request_)
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert len(setup.broker.frames) == 1
    assert setup.link.is_open


def test_request_outside_the_protocol_is_not_sent() -> None:
    setup = Setup()
    for request in (Metadata(topics=["x" * 40_000]), Fetch(partitions=[FetchPartition("a", 2**31, 0, 1)])):
        (error,) = setup.submit(request)
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.INVALID_REQUEST
    assert len(setup.broker.frames) == 1


def test_a_request_that_is_not_of_the_protocol() -> None:
    class Odd(Request[None]):
        pass

    (error,) = Setup().submit(Odd())
    assert error.code is ErrorCode.UNSUPPORTED_VERSION


def test_the_callers_client_id_comes_first() -> None:
    setup = Setup()
    setup.link.submit(Metadata(topics=None), Caller(client_id="other"), lambda result: None)
    setup.transport.run()
    assert setup.broker.frames[-1][8:15] == b"\x00\x05other"


def test_answers_belong_to_requests_in_order() -> None:
    setup = Setup()
    replies = [setup.submit(Metadata(topics=[name])) for name in "abc"]
    for index, host in enumerate("abc"):
        setup.answer(3, 12, MetadataResult(brokers=(), cluster_id=host, controller_id=0, topics=()), 1 + index)
    assert [result.cluster_id for (result,) in replies] == ["a", "b", "c"]


def test_an_answer_that_was_not_due_ends_the_link() -> None:
    setup = Setup()
    replies = [setup.submit(Metadata(topics=[name])) for name in "ab"]
    setup.answer(3, 12, SAMPLES[3].result, 2)
    for (failure,) in replies:
        assert isinstance(failure, TransportError)
    assert not setup.link.is_open


def test_fetched_records_outlive_their_frame() -> None:
    setup = Setup()
    replies = setup.submit(SAMPLES[1].request)
    setup.answer(1, 16, SAMPLES[1].result)
    assert normal(replies) == normal([SAMPLES[1].result])


def test_where_topics_go_by_id_answers_have_the_names_of_the_request() -> None:
    setup = Setup()
    names = {ID_A: "clicks", ID_B: "views"}
    asked = [evolve(part, topic=names[part.topic_id]) for part in SAMPLES[1].request.partitions]
    replies = setup.submit(evolve(SAMPLES[1].request, partitions=asked))
    assert setup.broker.frames[-1][:4] == pack(">hh", 1, 16)
    assert b"clicks" not in setup.broker.frames[-1]
    setup.answer(1, 16, SAMPLES[1].result)
    (result,) = replies
    assert [(part.topic, part.partition) for part in result.partitions] == [("clicks", 1), ("clicks", 2), ("views", 0)]


def test_without_the_id_of_a_topic_all_go_by_name() -> None:
    setup = Setup()
    asked = [FetchPartition("a", 0, 0, 1, topic_id=ID_A), FetchPartition("b", 0, 0, 1)]
    setup.submit(Fetch(partitions=asked))
    assert setup.broker.frames[-1][:4] == pack(">hh", 1, 12)
    (error,) = setup.submit(Fetch(partitions=asked, replica_id=1, replica_epoch=2))
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "version 15 or later" in str(error)


def test_results_come_in_the_order_of_the_request() -> None:
    setup = Setup()
    asked = [("b", 1), ("a", 0), ("b", 0), ("a", 2)]
    replies = setup.submit(Produce(partitions=[ProducePartition(t, p, memoryview(b"")) for t, p in asked]))
    observed = [ProduceResultPartition(t, p, base_offset=10 * p) for t, p in sorted(asked)]
    setup.answer(0, 11, ProduceResult(partitions=observed, throttle_ms=5))
    (result,) = replies
    assert [(part.topic, part.partition) for part in result.partitions] == asked
    assert [part.base_offset for part in result.partitions] == [10, 0, 0, 20]
    assert result.throttle_ms == 5


def test_an_answer_that_leaves_a_partition_out_ends_the_link() -> None:
    setup = Setup()
    replies = setup.submit(SAMPLES[1].at(12).request)
    setup.answer(1, 12, evolve(SAMPLES[1].at(12).result, partitions=SAMPLES[1].at(12).result.partitions[:2]))
    (failure,) = replies
    assert isinstance(failure, TransportError)
    assert "views" in str(failure)


def test_an_error_of_a_whole_fetch_has_no_partitions() -> None:
    setup = Setup()
    replies = setup.submit(SAMPLES[1].request)
    refused = evolve(SAMPLES[1].result, partitions=(), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    setup.answer(1, 16, refused)
    assert normal(replies) == normal([refused])


def test_no_acknowledgement_is_waited_for_where_none_comes() -> None:
    setup = Setup()
    (result,) = setup.submit(evolve(SAMPLES[0].request, acks=0))
    assert [(part.error, part.base_offset) for part in result.partitions] == [(ErrorCode.NONE, -1)] * 3
    assert len(setup.broker.frames) == 2
    replies = setup.submit(Metadata(topics=None))
    setup.answer(3, 12, SAMPLES[3].result)
    assert normal(replies) == normal([SAMPLES[3].result])


def test_closing_fails_what_is_on_its_way() -> None:
    setup = Setup()
    replies = [setup.submit(Metadata(topics=None)) for _ in range(2)]
    setup.link.close()
    setup.link.close()
    assert [type(reply) for (reply,) in replies] == [TransportError] * 2
    setup.transport.run()
    assert [len(reply) for reply in replies] == [1, 1]
    assert isinstance(setup.submit(Metadata(topics=None))[0], TransportError)
    assert setup.scheduler.waiting == 0


def test_a_lost_connection_fails_what_is_on_its_way() -> None:
    setup = Setup()
    replies = setup.submit(Metadata(topics=None))
    assert setup.broker.connection is not None
    setup.broker.connection.close()
    setup.transport.run()
    assert [type(reply) for reply in replies] == [ClosedUnanswered]
    assert not setup.link.is_open


def test_the_connection_lost_during_negotiation() -> None:
    setup = Setup(negotiate=False)
    assert setup.broker.connection is not None
    setup.broker.connection.close()
    setup.transport.run()
    assert [type(outcome) for outcome in setup.opened] == [ClosedUnanswered]


def test_a_request_that_is_not_answered_in_time_ends_the_link() -> None:
    setup = Setup()
    setup.scheduler.advance(500)
    replies = setup.submit(Metadata(topics=None))
    setup.scheduler.advance(TIMEOUT_MS)
    assert replies == []
    setup.scheduler.advance(TIMEOUT_MS / 4)
    (failure,) = replies
    assert isinstance(failure, TransportError)
    assert "Metadata" in str(failure)
    assert setup.scheduler.waiting == 0


def test_fetch_timeout_includes_max_wait_ms() -> None:
    setup = Setup()
    replies = setup.submit(evolve(SAMPLES[1].request, max_wait_ms=3 * TIMEOUT_MS))
    setup.scheduler.advance(4 * TIMEOUT_MS)
    assert replies == []
    setup.scheduler.advance(TIMEOUT_MS / 2)
    assert [type(reply) for reply in replies] == [TransportError]


def test_a_join_may_wait_for_the_other_members_and_what_follows_waits_for_it() -> None:
    setup = Setup()
    join = JoinGroup(
        group_id="g", session_timeout_ms=1, rebalance_timeout_ms=3 * TIMEOUT_MS, protocol_type="consumer", protocols=()
    )
    joined, observed = setup.submit(join), setup.submit(Metadata(topics=None))
    setup.scheduler.advance(4 * TIMEOUT_MS)
    assert (joined, observed, setup.link.is_open) == ([], [], True)
    setup.scheduler.advance(TIMEOUT_MS / 2)
    assert [type(reply) for reply in joined + observed] == [TransportError] * 2


def test_answers_in_time_leave_no_timer_behind() -> None:
    setup = Setup()
    for _ in range(20):
        replies = setup.submit(Metadata(topics=None))
        setup.answer(3, 12, SAMPLES[3].result)
        setup.scheduler.advance(TIMEOUT_MS / 3)
        assert len(replies) == 1
    setup.scheduler.advance(TIMEOUT_MS)
    assert setup.scheduler.waiting == 0
    assert setup.link.is_open


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00", pack(">Bi", 0, 1), b"\x00" + bytes(4) + b"\xff\xff\xff\xff\x0f", b"\x00" + bytes(4) + b"\x05ab"],
)
def test_answers_that_make_no_sense_end_the_link(body: bytes) -> None:
    setup = Setup()
    replies = setup.submit(Metadata(topics=None))
    setup.broker.answer(body)
    setup.transport.run()
    (failure,) = replies
    assert isinstance(failure, TransportError)
    assert "malformed" in str(failure)


def test_an_error_in_a_reply_is_the_callers_own() -> None:
    setup = Setup()

    def reply(result: MetadataResult | Any) -> None:
        raise ValueError("mine")

    setup.link.submit(Metadata(topics=None), Caller(), reply)
    setup.transport.run()
    with pytest.raises(ValueError, match="mine"):
        setup.answer(3, 12, SAMPLES[3].result)
    assert setup.link.is_open


def test_in_a_fetch_session_the_answer_has_what_is_new_alone() -> None:
    setup = Setup()
    replies = setup.submit(Fetch(partitions=(), replica_id=1, replica_epoch=2, session_id=77, session_epoch=4))
    assert setup.broker.frames[-1][:4] == pack(">hh", 1, 16)
    setup.answer(1, 16, FetchResult(partitions=[FetchResultPartition("", 3, topic_id=ID_A)], session_id=77))
    (result,) = replies
    assert [(part.topic_id, part.partition) for part in result.partitions] == [(ID_A, 3)]
    assert result.session_id == 77


def test_link_sends_nothing_while_the_broker_throttles_it() -> None:
    setup = Setup()
    metadata = evolve(SAMPLES[3].result, throttle_ms=700)
    first = setup.submit(Metadata(topics=None))
    setup.answer(3, ALL[3][1], metadata)
    assert first[0].throttle_ms == 700
    sent = len(setup.broker.frames)
    second = setup.submit(Metadata(topics=None))
    setup.scheduler.advance(699)
    setup.transport.run()
    assert (len(setup.broker.frames), second) == (sent, [])
    setup.scheduler.advance(1)
    setup.transport.run()
    assert len(setup.broker.frames) == sent + 1
    setup.answer(3, ALL[3][1], evolve(metadata, throttle_ms=0))
    assert len(second) == 1


def test_requests_of_a_throttled_link_fail_when_it_closes() -> None:
    setup = Setup()
    setup.submit(Metadata(topics=None))
    setup.answer(3, ALL[3][1], evolve(SAMPLES[3].result, throttle_ms=700))
    waiting = setup.submit(Metadata(topics=None))
    setup.link.close()
    assert isinstance(waiting[0], TransportError)
    assert setup.scheduler.waiting == 0


def test_fetch_of_a_throttled_client_is_answered_without_partitions() -> None:
    setup = Setup()
    replies = setup.submit(Fetch(partitions=[FetchPartition("t", 0, 0, 100)]))
    setup.answer(1, 12, FetchResult(partitions=(), throttle_ms=300))
    assert (replies[0].partitions, replies[0].throttle_ms) == ([], 300)
