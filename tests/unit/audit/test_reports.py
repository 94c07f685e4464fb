"""Reports of the tiers, encoded and decoded, and reports that other programs may have written."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas import Message
from barnabas.audit import ranges, reports
from barnabas.audit.counting import MessageCounts
from barnabas.audit.envelope import AuditDecoder
from barnabas.audit.reports import CountReport, InstanceReport, ReachReport, Reporter, TopicReach
from barnabas.audit.stamp import HEADER, MAGIC, Head, decode_head, encode_head, enveloped

ORIGIN = Reporter(tier="broker", after="producer", by="auditor-1", number=7, time_ms=1_700_000_000_000)
numbers = st.integers(0, 2**63)
pairs = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
counts = st.builds(
    CountReport,
    origin=st.just(ORIGIN),
    topic=st.text(),
    window_ms=numbers,
    width_ms=st.integers(1, 10**9),
    instance=st.text(),
    count=numbers,
    ranges=st.lists(pairs),
    delays=st.dictionaries(st.integers(0, 200), st.integers(1, 10**9)),
    failed=st.booleans(),
)
reaches = st.builds(
    TopicReach, partitions=st.integers(0, 100), upto_ms=st.dictionaries(st.integers(0, 99), numbers), since_ms=numbers
)
any_report = (
    counts
    | st.builds(ReachReport, origin=st.just(ORIGIN), topics=st.dictionaries(st.text(), reaches))
    | st.builds(InstanceReport, origin=st.just(ORIGIN), closed=st.booleans())
)


@given(any_report)
def test_a_report_comes_back(report: reports.Report) -> None:
    assert reports.decode(reports.encode(report)) == report


@given(st.binary() | st.none())
def test_malformed_report_decodes_to_none(data: bytes | None) -> None:
    assert reports.decode(data) is None


def test_a_report_of_another_shape_or_version_is_none() -> None:
    good = reports.encode(InstanceReport(origin=ORIGIN, closed=True))
    assert reports.decode(good) is not None
    for old, new in ((b'"v":1', b'"v":2'), (b'"instance"', b'"other"'), (b'"n":7', b'"n":-7'), (b'"closed"', b'"c"')):
        assert reports.decode(good.replace(old, new)) is None
    assert reports.decode(b"[]") is None
    assert reports.decode(b"17") is None


def test_a_report_of_very_many_ranges_goes_in_pieces() -> None:
    gaps = [(n, n) for n in range(0, 10_000, 2)]
    made = CountReport(
        origin=ORIGIN, topic="t", window_ms=0, width_ms=1, instance="i", count=5000, ranges=gaps, delays={3: 9}
    )
    pieces = list(reports.in_pieces(made))
    assert [pair for piece in pieces for pair in piece.ranges] == gaps
    assert [piece.count for piece in pieces] == [2000, 2000, 1000]
    assert [dict(piece.delays) for piece in pieces] == [{3: 9}, {}, {}]


@given(st.text(min_size=1, max_size=50), st.integers(0, 2**53 - 1))
def test_a_stamp_comes_back(instance: str, time_ms: int) -> None:
    assert decode_head(encode_head(instance, time_ms)) == Head(instance, time_ms)


@given(st.binary(max_size=300))
def test_any_header_is_a_stamp_or_none(head: bytes) -> None:
    found = decode_head(head)
    assert found is None or encode_head(*found) == head


stamps = st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y"]), st.integers(0, 99), st.integers(0, 30))


@given(st.lists(stamps | st.none()), st.integers(1, 40))
def test_messages_are_counted_by_topic_window_and_instance(
    made: list[tuple[str, str, int, int] | None], width: int
) -> None:
    messages = [
        Message(b"", timestamp_ms=5, topic="plain")
        if each is None
        else Message(
            b"",
            headers=((HEADER, encode_head(each[1], each[2]) + each[3].to_bytes(8)), *((("z", b""),) * (each[3] % 2))),
            topic=each[0],
        )
        for each in made
    ]
    counted = MessageCounts(width)
    half = len(messages) // 2
    counted.add(messages[:half], 100)
    counted.add(messages[half:], 100)
    found = counted.take_reports(ORIGIN)
    assert not counted
    got = sorted((c.topic, c.window_ms, c.instance, n) for c in found for a, b in c.ranges for n in range(a, b + 1))
    assert got == sorted((topic, time - time % width, name, n) for topic, name, time, n in filter(None, made))
    assert sum(c.count for c in found if not c.instance) == made.count(None)
    assert all(c.count == ranges.total(c.ranges) == sum(c.delays.values()) for c in found if c.instance)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: MAGIC + rest))
def test_any_value_has_a_stamp_before_it_or_none(value: bytes) -> None:
    stamp = enveloped(value)
    assert stamp is None or value.startswith(MAGIC + bytes((len(stamp) - 8,)) + stamp)


@given(st.text(min_size=1, max_size=50), st.integers(0, 2**53 - 1), st.integers(0, 2**64 - 1), st.binary())
def test_a_stamp_before_a_value_counts_as_one_in_a_header(name: str, time_ms: int, number: int, value: bytes) -> None:
    stamp = encode_head(name, time_ms) + number.to_bytes(8)
    classic = Message(MAGIC + bytes((len(stamp) - 8,)) + stamp + value, topic="t")
    found = []
    for message in (classic, Message(value, headers=((HEADER, stamp),), topic="t")):
        counted = MessageCounts(1000)
        counted.add([message], time_ms)
        found.append(counted.take_reports(ORIGIN))
    assert found[0] == found[1]
    assert AuditDecoder().decode("t", classic.value) == value
    assert AuditDecoder().decode("t", None) is None
