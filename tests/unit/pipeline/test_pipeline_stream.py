"""The next ranges of a stream, over a cluster of lists: recreated topics, logs that are truncated, rate limits."""

import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from support.memory_cluster import MemoryCluster

from barnabas.pipeline.source import datasource
from barnabas.pipeline.source.datasource import BarnabasDataSource, RefusedStream, TopicStreamReader
from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.source.ranges import OffsetRange
from barnabas.pipeline.source.stream_plan import StreamOffsets
from barnabas.pipeline.spark.errors import plain_worker_errors
from barnabas.pipeline.streams import append_batches, offsets_behind_latest
from barnabas.pipeline.topics.model import ClusterPartition
from barnabas.ports.errors import ApiError, ConfigError

OPTIONS = {"bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest"}


def _cluster(records: int = 10, topic_id: str = "one", *, partitions: int = 1) -> MemoryCluster:
    cluster = MemoryCluster()
    _create(cluster, records, topic_id, partitions=partitions)
    return cluster


def _create(cluster: MemoryCluster, records: int, topic_id: str, *, partitions: int = 1) -> None:
    for log in cluster.create("t", partitions, topic_id):
        for i in range(records):
            log.add(1000 + i, b"v")


def _reader(cluster: MemoryCluster, clock: Any = lambda: 0.0, **options: str) -> TopicStreamReader:
    return TopicStreamReader(read_options(OPTIONS | options, streaming=True), lambda where, client: cluster, clock)


def _next(reader: TopicStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def _ranges(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    planned = reader.partitions(start, end)
    parts = [part for slice_ in planned for part in slice_.parts]  # type: ignore[attr-defined]  # slices
    assert all(isinstance(part, OffsetRange) for part in parts)
    return [(part.partition, part.start, part.end) for part in parts]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasource, "_END_PAUSE_S", 0)


def test_offsets_say_of_which_topic_they_are() -> None:
    reader = _reader(_cluster())
    start = reader.initialOffset()
    assert start == {"offsets": '{"t": {"0": 0}}', "topicIds": {"t": "one"}}
    end = _next(reader, start)
    assert end == {"offsets": '{"t": {"0": 10}}', "topicIds": {"t": "one"}}
    assert _next(reader, end) == end
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == end


def test_a_recreated_topic_stops_the_stream() -> None:
    cluster = _cluster()
    reader = _reader(cluster)
    end = _next(reader, reader.initialOffset())
    _create(cluster, 25, "two")
    with pytest.raises(
        ApiError, match=r"'t' was deleted and created again: its id was one and is two; .*t-0@10"
    ) as observed:
        _next(reader, end)
    assert "set failOnDataLoss=false to continue with the new topic from its beginning" in str(observed.value)
    with pytest.raises(ApiError, match="created again"):
        _next(_reader(cluster), end)  # another run of the stream


def test_the_new_topic_is_read_from_its_beginning_on_request(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _cluster(partitions=2)
    reader = _reader(cluster, failOnDataLoss="false")
    before = _next(reader, reader.initialOffset())
    _create(cluster, 25, "two", partitions=1)
    cluster.logs["t"][0].delete_before(3)
    with caplog.at_level(logging.WARNING, "barnabas.pipeline"):
        after = _next(reader, before)
    assert "was deleted and created again" in caplog.text
    assert after == {"offsets": '{"t": {"0": 25}}', "topicIds": {"t": "two"}}
    assert _ranges(reader, before, after) == [(0, 3, 25)]
    assert reader.latestOffset(before, ReadMaxRows(5))["offsets"] == '{"t": {"0": 8}}'
    assert _next(reader, after) == after


def test_a_topic_that_is_recreated_after_a_batch_was_planned(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _cluster()
    reader = _reader(cluster)
    start = reader.initialOffset()
    end = _next(reader, start)
    _create(cluster, 25, "two")
    with pytest.raises(ApiError, match=r"its id was one and is two.*a batch up to t-0@10 was planned"):
        reader.partitions(start, end)
    calm = _reader(cluster, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "barnabas.pipeline"):
        assert calm.partitions(start, end) == []
    assert "a batch up to t-0@10 was planned" in caplog.text
    assert _ranges(calm, end, _next(calm, end)) == [(0, 0, 25)]
    del cluster.logs["t"]
    with pytest.raises(ApiError, match="topic 't' is gone"):
        reader.partitions(start, end)
    assert calm.partitions(start, end) == []


def test_a_topic_that_is_recreated_while_a_slice_is_read(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _cluster()
    reader = _reader(cluster)
    start = reader.initialOffset()
    (slice_,) = reader.partitions(start, _next(reader, start))
    assert [batch.num_rows for batch in reader.read(slice_)] == [10]
    rows = reader.read(slice_)
    assert next(rows).num_rows == 10
    _create(cluster, 25, "two")
    with pytest.raises(ApiError, match=r"created again while offsets 0 to 10 were read of t-0"):
        next(rows)
    with caplog.at_level(logging.WARNING, "barnabas.pipeline"):
        assert [batch.num_rows for batch in _reader(cluster, failOnDataLoss="false").read(slice_)] == [10]
    assert "created again while" in caplog.text


def test_checkpoints_of_before_have_no_ids() -> None:
    cluster = _cluster()
    reader = _reader(cluster)
    old = {"offsets": '{"t": {"0": 10}}'}
    new = _next(reader, old)
    assert new == old | {"topicIds": {"t": "one"}}
    assert reader.partitions(old, new) == []
    _create(cluster, 25, "two")
    assert _ranges(reader, old, _next(reader, old)) == [(0, 10, 25)]  # the change cannot be detected
    _create(cluster, 4, "three")
    with pytest.raises(ApiError, match="t-0 ends at 4, before the stream's offset 10: it was truncated"):
        _next(reader, old)


def test_without_ids_a_log_that_is_shorter_is_another_one() -> None:
    cluster = _cluster(topic_id="")
    reader = _reader(cluster, failOnDataLoss="false")
    before = _next(reader, reader.initialOffset())
    assert before == {"offsets": '{"t": {"0": 10}}'}
    _create(cluster, 4, "")
    with pytest.raises(ApiError, match="t-0 ends at 4, before the stream's offset 10"):
        _next(_reader(cluster), before)
    after = _next(reader, before)
    assert after == {"offsets": '{"t": {"0": 4}}'}
    assert _ranges(reader, before, after) == [(0, 0, 4)]


def test_a_log_of_the_same_topic_that_was_cut_off_is_not_read_again() -> None:
    cluster = _cluster()
    reader = _reader(cluster, failOnDataLoss="false")
    before = _next(reader, reader.initialOffset())
    _create(cluster, 4, "one")
    with pytest.raises(ApiError, match="ends at 4"):
        _next(_reader(cluster), before)
    after = _next(reader, before)
    assert after["offsets"] == '{"t": {"0": 4}}'
    assert _ranges(reader, before, after) == []
    cluster.logs["t"][0].add(1, b"v")
    assert _ranges(reader, after, _next(reader, after)) == [(0, 4, 5)]


def test_an_end_that_a_new_leader_does_not_know_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _cluster(4)
    before = {"offsets": '{"t": {"0": 10}}', "topicIds": {"t": "one"}}
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        _create(cluster, 12, "one")

    monkeypatch.setattr("barnabas.pipeline.source.datasource.time.sleep", pause)
    assert _next(_reader(cluster), before)["offsets"] == '{"t": {"0": 12}}'
    assert len(pauses) == 1


def test_deleted_partitions_are_data_loss_only_if_subscribed() -> None:
    cluster = _cluster(partitions=2, topic_id="")
    reader = _reader(cluster)
    before = _next(reader, reader.initialOffset())
    cluster.logs["t"].pop()
    with pytest.raises(ApiError, match="t-1 is gone; the stream was at offset 10 of it"):
        _next(reader, before)
    assert _next(_reader(cluster, failOnDataLoss="false"), before)["offsets"] == '{"t": {"0": 10}}'
    cluster.create("u", 1, "other")
    other = _next(_reader(cluster, subscribe="u"), before)
    assert other == {"offsets": '{"t": {"0": 10, "1": 10}, "u": {"0": 0}}', "topicIds": {"u": "other"}}


def test_new_partitions_are_read_from_their_beginning() -> None:
    cluster = _cluster()
    reader = _reader(cluster)
    before = _next(reader, reader.initialOffset())
    _create(cluster, 10, "one", partitions=2)
    after = _next(reader, before)
    assert _ranges(reader, before, after) == [(1, 0, 10)]


def test_a_new_partition_that_loses_all_that_was_planned_is_data_loss(caplog: pytest.LogCaptureFixture) -> None:
    cluster = _cluster()
    start = _reader(cluster).initialOffset()
    _create(cluster, 10, "one", partitions=2)
    end = _next(_reader(cluster), start)
    new = cluster.logs["t"][1]
    for _ in range(10):
        new.add(2000, b"later")
    new.delete_before(15)
    with pytest.raises(ApiError, match="t-1: offsets up to 10 were planned, and the log begins at 15"):
        _ranges(_reader(cluster), start, end)
    with caplog.at_level(logging.WARNING, "barnabas"):
        assert _ranges(_reader(cluster, failOnDataLoss="false"), start, end) == [(0, 0, 10)]
    assert "t-1: offsets up to 10 were planned" in caplog.text


def test_offsets_of_other_format_raise_config_error() -> None:
    with pytest.raises(ConfigError, match="none of format 'barnabas'"):
        _next(_reader(_cluster()), {"elsewhere": 1})


def test_few_offsets_wait_for_more_but_not_for_ever() -> None:
    now = [0.0]
    cluster = _cluster(3)
    reader = _reader(cluster, lambda: now[0], minOffsetsPerTrigger="5", maxTriggerDelay="30s")
    assert reader.getDefaultReadLimit() == ReadMinRows(5)
    start = reader.initialOffset()
    end = _next(reader, start)
    assert end["offsets"] == '{"t": {"0": 3}}'  # the first batch waits for nothing
    cluster.logs["t"][0].add(1, b"v")
    assert _next(reader, end) == end
    assert reader.latestOffset(end, ReadAllAvailable())["offsets"] == '{"t": {"0": 4}}'
    for _ in range(4):
        cluster.logs["t"][0].add(1, b"v")
    enough = _next(reader, end)
    assert enough["offsets"] == '{"t": {"0": 8}}'
    cluster.logs["t"][0].add(1, b"v")
    assert _next(reader, enough) == enough
    now[0] = 30.0
    assert _next(reader, enough)["offsets"] == '{"t": {"0": 9}}'


def test_min_offsets_per_trigger_combines_with_maximum() -> None:
    cluster = _cluster(20)
    reader = _reader(cluster, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="8")
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    end = reader.initialOffset()
    reached = []
    for _ in range(4):
        end = _next(reader, end)
        reached.append(end["offsets"])
    assert reached == [f'{{"t": {{"0": {offset}}}}}' for offset in (8, 16, 16, 16)]


def test_all_that_was_there_comes_at_once_when_only_that_is_asked_for() -> None:
    cluster = _cluster(12)
    reader = _reader(cluster, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="10")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    cluster.logs["t"][0].add(1, b"v")
    first = _next(reader, start)
    second = _next(reader, first)
    assert [first["offsets"], second["offsets"]] == ['{"t": {"0": 10}}', '{"t": {"0": 12}}']
    assert _next(reader, second) == second


def test_how_far_a_stream_is_behind() -> None:
    end = {"offsets": '{"t": {"0": 10, "1": 4}, "u": {"0": 7}}', "topicIds": {"t": "one", "u": "one"}}
    latest = {"offsets": '{"t": {"0": 10, "1": 6}, "u": {"0": 4}, "v": {"0": 3}}', "topicIds": {"t": "one", "u": "two"}}
    expected = {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "4", "avgOffsetsBehindLatest": "2.25"}
    assert offsets_behind_latest({"endOffset": end, "latestOffset": latest}) == expected
    observed = SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest))
    assert offsets_behind_latest(observed) == expected
    assert offsets_behind_latest({"endOffset": None, "latestOffset": latest}) == {}


def test_a_writer_of_batches_checks_its_options_at_once() -> None:
    with pytest.raises(ConfigError, match="unknown option 'topics'"):
        append_batches(bootstrap="h:1", topics="t")


def test_a_stream_that_cannot_be_says_why_when_it_is_asked() -> None:
    source = BarnabasDataSource(OPTIONS | {"endingOffsets": "latest"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, RefusedStream)
    for ask in (reader.initialOffset, reader.getDefaultReadLimit, reader.prepareForTriggerAvailableNow):
        with pytest.raises(ConfigError, match="endingOffsets has no meaning in a stream"):
            ask()


def test_traceback_is_hidden_for_own_errors_in_spark_workers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    @plain_worker_errors()
    def refuse(error: Exception) -> None:
        raise error

    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(ConfigError):
        refuse(ConfigError("wrong"))
    assert os.environ == {}
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))
    with pytest.raises(KeyError):
        refuse(KeyError("a fault"))
    assert os.environ == {}
    with pytest.raises(ConfigError):
        refuse(ConfigError("wrong"))
    assert os.environ == {"SPARK_HIDE_TRACEBACK": "1"}


def test_offsets_of_sparks_own_source_are_taken_over() -> None:
    found = StreamOffsets.unpacked({"t": {"0": 4, "1": 2}, "offsets": {"0": 7}})
    assert found == StreamOffsets(
        {ClusterPartition("t", 0): 4, ClusterPartition("t", 1): 2, ClusterPartition("offsets", 0): 7}
    )
    assert json.loads(found.connector_form()) == {"t": {"0": 4, "1": 2}, "offsets": {"0": 7}}
    reader = _reader(_cluster(10))
    end = _next(reader, {"t": {"0": 4}})
    assert end == {"offsets": '{"t": {"0": 10}}', "topicIds": {"t": "one"}}
    assert _ranges(reader, {"t": {"0": 4}}, end) == [(0, 4, 10)]
