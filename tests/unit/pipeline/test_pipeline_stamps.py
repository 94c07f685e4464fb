"""The audit's stamps in columns, against counting the same messages one by one."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from barnabas import Message
from barnabas.audit.counting import MessageCounts
from barnabas.audit.reports import CountReport, Reporter
from barnabas.audit.stamp import HEADER, encode_head
from barnabas.pipeline.table_audit import count_rows

BY = Reporter(tier="table", after="broker", by="t")
stamps = st.builds(
    lambda name, time, number: (HEADER, encode_head(name, time) + number.to_bytes(8)),
    st.sampled_from(["web-1", "web-2"]),
    st.integers(0, 3).map(lambda n: n * 400),
    st.integers(0, 40),
)
others = st.sampled_from([("other", b"x"), (HEADER, None), (HEADER, b"short"), ("", b"")])
rows = st.lists(
    st.tuples(st.tuples(others) | st.tuples(stamps) | st.tuples(others, stamps) | st.just(()), st.integers(0, 9))
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def counted(counts: MessageCounts) -> list[CountReport]:
    return counts.take_reports(BY)


@given(rows, st.sampled_from(["ms", "us"]), st.integers(1, 4))
def test_columns_are_counted_as_messages_are(
    made: list[tuple[tuple[tuple[str, bytes | None], ...], int]], unit: str, cuts: int
) -> None:
    one_by_one, by_column = MessageCounts(500), MessageCounts(500)
    messages = [Message(b"", headers=headers, timestamp_ms=time * 100, topic="t") for headers, time in made]
    # The column takes a stamp wherever it stands; one by one the last header is looked at first.
    usable = [m for m in messages if sum(name == HEADER for name, _ in m.headers) < 2]
    one_by_one.add(usable, 5000)
    per_unit = {"ms": 1, "us": 1000}[unit]
    table = pa.table(
        {
            "headers": pa.array([[{"key": k, "value": v} for k, v in m.headers] for m in usable], HEADERS),
            "timestamp": pa.array([(m.timestamp_ms or 0) * per_unit for m in usable], pa.timestamp(unit, "UTC")),
        }
    )
    size = max(1, len(usable) // cuts)
    chunked = pa.concat_tables([table.slice(at, size) for at in range(0, len(usable), size)] or [table])
    count_rows(chunked, "t", by_column, 5000)
    assert counted(by_column) == counted(one_by_one)


def test_a_table_without_headers_has_messages_without_stamps() -> None:
    counts = MessageCounts(1000)
    count_rows(pa.table({"timestamp": pa.array([1, 2, 1500], pa.timestamp("ms"))}), "t", counts, 0)
    assert [(c.window_ms, c.count, c.instance) for c in counted(counts)] == [(0, 2, ""), (1000, 1, "")]
