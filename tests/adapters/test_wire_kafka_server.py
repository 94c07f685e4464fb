"""The broker's end: order, bounds, what closes a connection, and the rules of single APIs."""

from struct import pack
from typing import Any

import pytest
from attrs import evolve, fields
from support.kafka_frames import ServerEnd, correlation_id_of, header, request_frame, result_of
from support.kafka_pair import MemoryRegion, PairConnection, ScriptedBroker, normal
from support.kafka_samples import SAMPLES

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.adapters.wire_kafka import KafkaServer, server
from barnabas.core.traffic.steps import StepRunner
from barnabas.ports.broker_api.envelope import Caller, Origin, Principal
from barnabas.ports.broker_api.fetch import FetchResult, FetchResultPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.topics import CreatedTopic, CreateTopicsResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19


class TickingClock(ManualClock):
    """One on which time passes as it is looked at."""

    def monotonic_ms(self) -> float:
        self.advance(0.05)
        return super().monotonic_ms()


def test_a_request_reaches_the_broker_with_its_caller() -> None:
    end = ServerEnd(lambda request: SAMPLES[METADATA].result)
    end.send(request_frame(METADATA, 12, 1, SAMPLES[METADATA].request, "app"))
    end.send(request_frame(METADATA, 12, 2, SAMPLES[METADATA].request, None))
    end.send(request_frame(METADATA, 12, 3, SAMPLES[METADATA].request, ""))
    number = end.broker.callers[0].connection
    expected = Caller(client_id="app", host="198.51.100.7", listener="PLAIN", connection=number)
    assert end.broker.callers == [expected, evolve(expected, client_id=None), evolve(expected, client_id="")]
    assert [normal(request) for request in end.broker.requests] == [normal(SAMPLES[METADATA].request)] * 3


def test_answers_keep_the_order_of_the_requests() -> None:
    end = ServerEnd()
    for correlation_id in range(4):
        end.send(request_frame(FETCH, 11, correlation_id, SAMPLES[FETCH].at(11).request))
    end.send(header(18, 0, 4))
    for index in (2, 1):
        end.broker.replies[index](SAMPLES[FETCH].at(11).result)
    assert end.answers == []
    end.broker.replies[0](SAMPLES[FETCH].at(11).result)
    assert [correlation_id_of(answer) for answer in end.answers] == [0, 1, 2]
    end.broker.replies[3](SAMPLES[FETCH].at(11).result)
    assert [correlation_id_of(answer) for answer in end.answers] == [0, 1, 2, 3, 4]


def test_connection_is_paused_while_fetch_response_is_pending() -> None:
    end = ServerEnd()
    end.send(request_frame(FETCH, 11, 1, SAMPLES[FETCH].at(11).request))
    for correlation_id in (2, 3):
        end.send(request_frame(METADATA, 12, correlation_id, SAMPLES[METADATA].request))
    assert (len(end.broker.requests), end.connection.paused) == (2, True)
    end.broker.replies[1](SAMPLES[METADATA].result)
    assert not end.connection.paused
    while end.connection.step():
        pass
    assert (len(end.broker.requests), end.connection.paused) == (3, True)
    end.broker.replies[0](SAMPLES[FETCH].at(11).result)
    end.broker.replies[2](SAMPLES[METADATA].result)
    assert not end.connection.paused
    assert [correlation_id_of(answer) for answer in end.answers] == [1, 2, 3]


@pytest.mark.parametrize("acks", [0, 1])
def test_connection_is_paused_while_produce_records_are_decompressed(acks: int) -> None:
    end, opening = ServerEnd(), [True]
    end.server.is_appending = lambda connection: opening[0]
    sample = SAMPLES[PRODUCE].at(9)
    frame = request_frame(PRODUCE, 9, 1, evolve(sample.request, acks=acks))
    end.send(frame)
    end.send(request_frame(METADATA, 12, 2, SAMPLES[METADATA].request))
    assert (len(end.broker.requests), end.connection.paused) == (1, True)
    assert end.connection.held_bytes >= len(frame) - 4, "its records count"
    opening[0] = False
    good = [evolve(each, error=ErrorCode.NONE, record_errors=()) for each in sample.result.partitions]
    end.broker.replies[0](evolve(sample.result, partitions=good))
    assert (end.connection.paused, end.connection.held_bytes) == (False, 0)
    while end.connection.step():
        pass
    assert len(end.broker.requests) == 2


def test_long_answers_are_written_in_steps_and_the_same() -> None:
    clock = TickingClock()
    scheduler = ManualScheduler(clock)
    steps = StepRunner(scheduler, clock, lambda error: pytest.fail(repr(error)))
    result = evolve(SAMPLES[METADATA].result, topics=list(SAMPLES[METADATA].result.topics) * 200)
    end, other = ServerEnd(lambda request: result, steps=steps), ServerEnd(lambda request: result)
    frame = request_frame(METADATA, 12, 7, SAMPLES[METADATA].request)
    end.send(frame)
    other.send(frame)
    assert (end.answers, end.connection.paused) == ([], True)
    turns = 0
    while not end.answers:
        scheduler._run_one()
        turns += 1
    assert turns > 1
    assert end.answers == other.answers
    assert not end.connection.paused


def test_an_answer_that_will_come_again_is_written_once() -> None:
    response = evolve(SAMPLES[METADATA].result, encoded={})
    end = ServerEnd(lambda request: response)
    for correlation_id, version in enumerate((12, 12, 5)):
        end.send(request_frame(METADATA, version, correlation_id, SAMPLES[METADATA].request))
    assert sorted(response.encoded) == [5, 12]
    assert end.answers[0][4:] == end.answers[1][4:]
    plain = ServerEnd(lambda request: SAMPLES[METADATA].result)
    plain.send(request_frame(METADATA, 12, 0, SAMPLES[METADATA].request))
    assert plain.answers[0] == end.answers[0]


def test_requests_in_flight_are_bounded() -> None:
    end = ServerEnd(max_in_flight=2)
    for correlation_id in range(5):
        end.send(request_frame(FETCH, 11, correlation_id, SAMPLES[FETCH].at(11).request))
    assert len(end.broker.requests) == 2
    end.broker.replies[1](SAMPLES[FETCH].at(11).result)
    paused = [end.connection.paused]  # the answer whose turn has not come still counts
    end.broker.replies[0](SAMPLES[FETCH].at(11).result)
    assert [*paused, end.connection.paused] == [True, False]
    while end.connection.step():
        pass
    assert len(end.broker.requests) == 4
    assert [correlation_id_of(answer) for answer in end.answers] == [0, 1]


def test_pending_bytes_are_reported_to_transport() -> None:
    end = ServerEnd()
    frames = [request_frame(key, 4, 1, SAMPLES[key].request, "c" * 300) for key in (FETCH, METADATA)]
    end.send(frames[0])
    held = end.connection.held_bytes
    assert held > len(frames[0])
    end.send(frames[1])
    asked = end.connection.held_bytes
    assert asked > held
    end.broker.replies[1](SAMPLES[METADATA].result)
    assert held < end.connection.held_bytes != asked, "an answer that waits for its turn"
    end.broker.replies[0](SAMPLES[FETCH].at(11).result)
    assert len(end.answers) == 2
    assert end.connection.held_bytes == 0


def test_the_bound_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="max_in_flight"):
        KafkaServer(ServerEnd().broker, listener="x", report=print, max_in_flight=0)


def test_an_immediate_answer_never_pauses() -> None:
    end = ServerEnd(lambda request: SAMPLES[METADATA].result, max_in_flight=1)
    for correlation_id in range(3):
        end.send(request_frame(METADATA, 5, correlation_id, SAMPLES[METADATA].request))
    assert len(end.answers) == 3


def test_records_of_an_answer_are_pieces_of_their_own() -> None:
    region = MemoryRegion(b"r" * 1000)
    parts = [
        FetchResultPartition("clicks", 0, high_watermark=5, records=region),
        FetchResultPartition("clicks", 1, high_watermark=5),
        FetchResultPartition("clicks", 2, high_watermark=6, records=b"abc"),
    ]
    end = ServerEnd(lambda request: FetchResult(partitions=parts))
    end.send(request_frame(FETCH, 12, 1, SAMPLES[FETCH].request))
    _, first, _, second, _ = end.connection.last_pieces
    assert first is region
    assert second == b"abc"
    read = result_of(FETCH, 12, end.answers[0])
    assert [bytes(part.records) for part in read.partitions] == [b"r" * 1000, b"", b"abc"]


def _acks_0(end: ServerEnd, correlation_id: int) -> None:
    end.send(request_frame(PRODUCE, 9, correlation_id, evolve(SAMPLES[PRODUCE].request, acks=0)))


def test_no_answer_goes_out_without_acknowledgement() -> None:
    end = ServerEnd()
    _acks_0(end, 1)
    end.send(header(18, 0, 2))
    assert end.answers == []
    end.broker.replies[0](ProduceResult(partitions=[ProduceResultPartition("clicks", 3, base_offset=1)]))
    assert [correlation_id_of(answer) for answer in end.answers] == [2]
    assert end.reports == []


def test_an_error_without_acknowledgement_closes_the_connection() -> None:
    end = ServerEnd()
    _acks_0(end, 1)
    end.broker.replies[0](SAMPLES[PRODUCE].at(9).result)
    assert end.connection.is_closed
    (line,) = end.reports
    assert "clicks-4" in line
    assert "INVALID_RECORD" in line
    assert "198.51.100.7:4321" in line


def test_an_answer_after_the_connection_has_gone_is_dropped() -> None:
    end = ServerEnd()
    end.send(request_frame(FETCH, 12, 1, SAMPLES[FETCH].request))
    end.connection.is_closed = True
    end.connection.step()
    assert end.connection.handler is None
    end.broker.replies[0](SAMPLES[FETCH].at(11).result)
    assert end.answers == []
    assert end.reports == []


def test_connections_have_distinct_ids_and_their_end_is_reported() -> None:
    gone: list[int] = []
    broker = ScriptedBroker()
    server = KafkaServer(broker, listener="PLAIN", report=print, gone=gone.append)
    ends = [PairConnection(("broker", 1), ("client", port)) for port in (2, 3)]
    for end in ends:
        end.handler = server.accept(end)
        end.deliver(request_frame(FETCH, 12, 1, SAMPLES[FETCH].request))
    one, other = (caller.connection for caller in broker.callers)
    assert one != other
    ends[1].is_closed = True
    ends[1].step()
    assert gone == [other]
    assert server.close("the broker stops") == 1
    assert ends[0].close_reason == "the broker stops"
    ends[0].step()
    assert gone == [other, one]
    assert server.close("the broker stops") == 0


def test_a_broker_that_fails_closes_the_connection() -> None:
    end = ServerEnd(lambda request: ApiError(ErrorCode.UNSUPPORTED_VERSION, "what is that?"))
    end.send(request_frame(FETCH, 12, 1, SAMPLES[FETCH].request))
    assert end.connection.is_closed
    assert "what is that?" in end.reports[0]


def test_an_answer_that_the_protocol_cannot_carry_closes_the_connection() -> None:
    end = ServerEnd(lambda request: CreateTopicsResult(topics=[CreatedTopic(name="x" * 40_000)]))
    end.send(request_frame(CREATE_TOPICS, 7, 1, SAMPLES[CREATE_TOPICS].request))
    assert end.connection.is_closed
    assert "cannot be encoded" in end.reports[0]


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        (header(999, 0, 1), "999"),
        (header(-1, 0, 1), "-1"),
        (header(PRODUCE, 2, 1), "Produce"),
        (header(PRODUCE, 14, 1), "Produce"),
        (header(FETCH, 3, 1), "Fetch"),
        (header(FETCH, 19, 1), "Fetch"),
        (header(METADATA, -1, 1), "Metadata"),
        (b"", ""),
        (b"\x00\x03\x00\x0c", ""),
        (header(METADATA, 12, 1), ""),
        (pack(">hhih", METADATA, 1, 1, -2) + bytes(4), "client id"),
        (pack(">hhih", METADATA, 1, 1, 3000) + bytes(4), "client id"),
        (pack(">hhih", METADATA, 1, 1, 2) + b"\xff\xfe" + bytes(4), "utf-8"),
        (header(METADATA, 1, 1) + pack(">i", 2**31 - 1), "2147483647"),
        (header(METADATA, 1, 1) + pack(">i", -2), "-2"),
        (header(METADATA, 9, 1) + b"\x00\xff\xff\xff\xff\x0f", "4294967294"),
        (header(METADATA, 9, 1) + b"\x00\xff\xff\xff\xff\x7f", "32 bits"),
        (header(METADATA, 9, 1) + b"\x00\xff\xff\xff\xff\xff\xff", "is too long"),
        (header(METADATA, 1, 1) + pack(">ih", 1, 2) + b"\xc3\x28", "utf-8"),
        (header(METADATA, 1, 1) + pack(">ih", 1, -1), ""),
        (header(METADATA, 10, 1) + b"\x00\x02" + bytes(16) + b"\x00\x00\x01\x00\x00\x00", "without a name"),
        (header(METADATA, 12, 1) + b"\x00\x02" + bytes(16) + b"\x00\x00\x01\x00\x00\x00", "without a name"),
        (header(PRODUCE, 3, 1) + pack(">hhii", -1, 1, 1, 1) + pack(">h", 1) + b"t" + pack(">iii", 1, 0, 99), "99"),
        (header(PRODUCE, 3, 1) + pack(">hhii", -1, 1, 1, 1) + pack(">h", 1) + b"t" + pack(">iii", 1, 0, -9), "-9"),
        (header(METADATA, 9, 1) + b"\xff\xff\xff\x7f", "tagged"),
        (header(18, 3, 1) + b"\x00\x04ab", ""),
    ],
)
def test_malformed_request_closes_the_connection(frame: bytes, word: str) -> None:
    end = ServerEnd()
    end.send(frame)
    assert end.connection.is_closed
    assert end.answers == []
    assert end.broker.requests == []
    (line,) = end.reports
    assert word in line
    end.connection.inbox.append(header(18, 0, 1))
    end.connection.step()
    assert end.answers == []


def test_a_frame_of_tiny_elements_is_refused_before_they_become_objects() -> None:
    end = ServerEnd()
    topics = 200_000
    end.send(header(METADATA, 1, 1) + pack(">i", topics) + bytes(2 * topics))
    assert end.connection.is_closed
    assert end.broker.requests == []


def test_bytes_after_a_request_do_not_matter() -> None:
    end = ServerEnd()
    end.send(request_frame(METADATA, 4, 1, SAMPLES[METADATA].request) + b"more")
    assert len(end.broker.requests) == 1


def test_tagged_fields_of_the_future_are_passed_over() -> None:
    end = ServerEnd()
    end.send(header(METADATA, 9, 1) + b"\x01\x05\x03abc" + b"\x01" + b"\x01\x00\x00" + b"\x02\x01\x01x\x09\x00")
    assert normal(end.broker.requests) == normal([Metadata(topics=[])])


@pytest.mark.parametrize("version", range(13))
def test_all_topics_or_none(version: int) -> None:
    end = ServerEnd(lambda request: SAMPLES[METADATA].result)
    end.send(request_frame(METADATA, version, 1, Metadata(topics=None)))
    end.send(request_frame(METADATA, version, 2, Metadata(topics=[])))
    all_topics, none = end.broker.requests
    assert all_topics.topics is None
    assert none.topics == (None if version == 0 else [])


@pytest.mark.parametrize("version", range(13))
def test_topics_are_created_automatically_unless_refused(version: int) -> None:
    end = ServerEnd()
    end.send(request_frame(METADATA, version, 1, Metadata(topics=["a"], allow_auto_topic_creation=False)))
    assert end.broker.requests[0].allow_auto_topic_creation is (version < 4)


def test_topics_by_id() -> None:
    end = ServerEnd()
    end.send(request_frame(METADATA, 12, 1, Metadata(topics=["a"], topic_ids=[b"i" * 16])))
    assert normal(end.broker.requests) == normal([Metadata(topics=["a"], topic_ids=[b"i" * 16])])


@pytest.mark.parametrize(("key", "first"), [(PRODUCE, 7), (FETCH, 10)])
def test_zstd_is_for_clients_that_know_it(key: int, first: int) -> None:
    end = ServerEnd()
    for version in (first - 1, first):
        end.send(request_frame(key, version, version, SAMPLES[key].request))
    assert [request.allows_zstd for request in end.broker.requests] == [False, True]


def test_no_fetch_session_is_granted() -> None:
    end = ServerEnd(lambda request: SAMPLES[FETCH].at(11).result)
    head = pack(">iiiibii", -1, 500, 1, 1000, 0, 0, 0)  # wants a session
    end.send(header(FETCH, 7, 1) + head + pack(">ii", 0, 0))
    assert end.answers[0][4:14] == pack(">ihi", 15, 0, 0)


@pytest.mark.parametrize(("epoch", "error"), [(3, ErrorCode.FETCH_SESSION_ID_NOT_FOUND), (-1, None), (0, None)])
def test_a_fetch_session_of_an_earlier_broker_is_not_known(epoch: int, error: ErrorCode | None) -> None:
    end = ServerEnd()
    head = pack(">iiiibii", -1, 500, 1, 1000, 0, 77, epoch)
    forgotten = pack(">ih", 1, 1) + b"t" + pack(">iii", 2, 0, 1)
    end.send(header(FETCH, 7, 1) + head + pack(">i", 0) + forgotten)
    if error is None:
        assert len(end.broker.requests) == 1
    else:
        assert result_of(FETCH, 7, end.answers[0]).error is error
        assert end.broker.requests == []


def test_null_records_are_empty_ones() -> None:
    end = ServerEnd()
    end.send(header(PRODUCE, 3, 1) + pack(">hhii", -1, 1, 1, 1) + pack(">h", 1) + b"t" + pack(">iii", 1, 0, -1))
    assert bytes(end.broker.requests[0].partitions[0].records) == b""


def test_records_are_writable_memory_of_the_frame() -> None:
    seen: list[bool] = []

    class Broker:
        def submit(self, request: Any, caller: Caller, reply: Any) -> None:
            seen.extend(not part.records.readonly for part in request.partitions if part.records)

    end = ServerEnd()
    handler = KafkaServer(Broker(), listener="x", report=print).accept(end.connection)
    handler.on_frame(memoryview(bytearray(request_frame(PRODUCE, 11, 1, SAMPLES[PRODUCE].request))))
    assert seen == [True, True]


def _introduce(software: bytes, version: bytes) -> bytes:
    """Return a request for ApiVersions 3 that names the client's software."""
    names = b"".join(bytes([len(text) + 1]) + text for text in (software, version))
    return header(18, 3, 7) + b"\x00" + names + b"\x00"


def test_software_of_a_client_is_described_with_its_connection() -> None:
    end = ServerEnd(clock=ManualClock())
    (connection,) = end.server.connections.values()
    assert connection.software == ("", "")
    end.send(_introduce(b"librdkafka", b"2.14.0"))
    end.send(request_frame(METADATA, 12, 1, SAMPLES[METADATA].request, "app"))
    found = connection.describe()
    assert (found.software_name, found.software_version, found.client_id) == ("librdkafka", "2.14.0", "app")
    assert (found.host, found.port, found.principal) == ("198.51.100.7", 4321, "User:ANONYMOUS")
    assert (found.requests, found.in_flight, found.connected_at_ms) == (2, 1, ManualClock().now_ms())


@pytest.mark.parametrize(
    ("software", "version"), [(b"-x", b"1"), (b"x", b"1."), (b"a b", b"1"), (b"", b"1"), (b"a\x1b", b"1")]
)
def test_software_name_that_kip_511_forbids_is_an_invalid_request(software: bytes, version: bytes) -> None:
    end = ServerEnd()
    end.send(_introduce(software, version))
    assert end.answers == [bytes.fromhex("00000007 002a 01 00000000 00")]
    assert [each.software for each in end.server.connections.values()] == [("", "")]
    end.send(_introduce(b"x", b"1"))
    assert end.answers[1][4:6] == b"\x00\x00", "the connection stays open"


def test_only_our_own_clients_find_our_own_api_in_api_versions() -> None:
    own = (30_000).to_bytes(2, "big")
    for software, is_offered in ((b"barnabas", True), (b"apache-kafka-java", False)):
        end = ServerEnd()
        end.send(_introduce(software, b"1"))
        assert (own in end.answers[0]) is is_offered


def test_long_software_names_and_client_ids_are_cut() -> None:
    end = ServerEnd()
    end.send(_introduce(b"x" * 120, b"1"))
    end.send(request_frame(METADATA, 12, 1, SAMPLES[METADATA].request, "y" * 32_000))
    (connection,) = end.server.connections.values()
    assert connection.software == ("x" * 100, "1")
    assert connection.describe().client_id == "y" * 250, "a page of connections has a bounded size"


def test_caller_with_a_client_id_keeps_everything_else() -> None:
    caller = Caller(
        client_id="before",
        host="198.51.100.7",
        listener="PLAIN",
        connection=7,
        principal=Principal("User", "ada"),
        origin=next(each for each in Origin if each is not Caller().origin),
        is_token_authenticated=True,
        is_encrypted=True,
    )
    assert server._with_client_id(caller, "after") == evolve(caller, client_id="after")
    default = Caller()
    assert not [field.name for field in fields(Caller) if getattr(caller, field.name) == getattr(default, field.name)]
