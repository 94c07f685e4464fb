"""The options of the data source, named as those of Spark's own Kafka source."""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from attrs import frozen

from ...ports.errors import ConfigError
from ..topics.client_options import reader_settings, writer_settings
from ..topics.model import EARLIEST, LATEST, PLACE_SETTINGS, REMOTE_STORAGE, ClusterPartition, Where
from .decoding_options import (
    DECODING_OPTIONS,
    ENCODING_OPTIONS,
    ColumnDecoding,
    ColumnEncoding,
    decoding_of,
    encoding_of,
)

Offsets = Mapping[ClusterPartition, int]

COMMIT_TO_GROUP = "commitOffsetsToGroup"
_BOOTSTRAP = ("kafka.bootstrap.servers", "bootstrap.servers", "bootstrap")
_SELECTORS = ("subscribe", "subscribePattern", "assign")
_READ = (
    *_BOOTSTRAP,
    *PLACE_SETTINGS,
    *_SELECTORS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "failOnDamage",
    "damageReport",
    "progressReport",
    "includeHeaders",
    REMOTE_STORAGE,
    COMMIT_TO_GROUP,
    *DECODING_OPTIONS,
)
_NOT_CLASSIC = {
    "endingTimestamp": "its messages have no times; say endingOffsets",
    "endingOffsetsByTimestamp": "its messages have no times; say endingOffsets",
    "minPartitions": "there is one task per broker, topic and partition",
    "maxRecordsPerPartition": "there is one task per broker, topic and partition",
    COMMIT_TO_GROUP: "its brokers keep no offsets of groups",
}
"""The reasons why a classic cluster does not allow these options."""
_WRITE = (*_BOOTSTRAP, *PLACE_SETTINGS, "topic", "includeHeaders", "txnAppId", "txnVersion", *ENCODING_OPTIONS)
"""`includeHeaders` is for the table's columns in Spark's Kafka sink, too: a column `headers` is written with it or
without."""
_CLIENT = "kafka."
"""The prefix of settings for the client, which knows them and refuses others."""
_WITHOUT_MEANING = frozenset(
    {
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "checkpointlocation",
        "queryname",
    }
)
"""Options of Spark's source that tune its Java client, accepted so that a job can be moved by changing its format; and
those that Spark itself reads from the options of a stream."""

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@frozen(kw_only=True)
class Selection:
    """The selected partitions: exactly one of the three is set."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[ClusterPartition, ...] | None = None

    def wants(self, tp: ClusterPartition) -> bool:
        """Return True if the partition is of those, were it there."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, tp.topic) is not None
        return tp.topic in self.topics if self.topics is not None else tp in (self.partitions or ())


@frozen(kw_only=True)
class Bound:
    """One end of what is read: EARLIEST or LATEST for all (`default`), offsets per partition, or times in ms."""

    default: int = LATEST
    offsets: Offsets | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Offsets | None = None


@frozen(kw_only=True)
class ReadOptions:
    """The options of a read; made by `read_options`."""

    where: Where
    selection: Selection
    starting: Bound
    ending: Bound
    latest_when_no_timestamp: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    """Records; of a classic cluster bytes, like all its offsets."""
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    """The longest time, in seconds, for which a batch of fewer than the minimum is held back."""
    fail_on_data_loss: bool = True
    damage_report: str | None = None
    """A folder for notes about what was left out since it is damaged."""
    progress_report: str | None = None
    """A folder for notes about how far the tasks have read."""
    include_headers: bool = False
    decoding: ColumnDecoding | None = None
    """Key and value as typed columns; None: as bytes."""
    commit_to_group: str | None = None
    """The consumer group to which a stream commits its progress."""
    client: Mapping[str, str] = {}


@frozen(kw_only=True)
class WriteOptions:
    """The options of a write; made by `write_options`. `producer` has producer settings by their dotted names.

    txn_app_id:  the name of a writer whose batches are written exactly once (see `exactly_once`).
    txn_version: the number of a batch: it grows, and one that is not above the last is not written again. None: the
                 next; in a stream Spark's own number of the micro-batch counts.
    """

    bootstrap: str
    topic: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    encoding: ColumnEncoding | None = None
    """The format in which key and value are written if they are no bytes."""
    producer: Mapping[str, str] = {}


def read_options(options: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
    """Check and type the options of a read; `streaming` None = not known yet, so that what only one of the two forbids
    passes. Raises `ConfigError` that names the option and what it may be."""
    given = _known(options, _READ)
    if streaming:
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if name in given:
                raise ConfigError(f"{name} has no meaning in a stream, which has no end")
    where = _where(given)
    selection = _selection(given)
    if where.classic:
        _check_classic(given, where, selection)
    return ReadOptions(
        where=where,
        selection=selection,
        starting=_bound(given, "starting", LATEST if streaming else EARLIEST, batch=streaming is False),
        ending=_bound(given, "ending", LATEST, batch=streaming is False),
        latest_when_no_timestamp=_strategy(given),
        min_partitions=_positive(given, "minPartitions"),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_least(given),
        max_trigger_delay_s=_duration_s(given.get("maxTriggerDelay", "15m"), "maxTriggerDelay"),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        damage_report=given.get("damageReport"),
        progress_report=given.get("progressReport"),
        include_headers=_boolean(given, "includeHeaders", default=False),
        decoding=decoding_of(given),
        commit_to_group=_group(given, batch=streaming is False),
        client=reader_settings(
            {**_client(given), **_skipping(given), **_bucket(given)}, prefix=_CLIENT, classic=where.classic
        ),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check and type the options of a write. Raises `ConfigError` that names the option and what it may be."""
    given = _known(options, _WRITE)
    where = _where(given)
    if where.classic:
        raise ConfigError("format 'barnabas' reads classic clusters, it does not write to them; use a Producer there")
    _boolean(given, "includeHeaders", default=False)
    topic = given.get("topic", "").strip()
    app_id = given.get("txnAppId")
    if app_id is not None and not app_id.strip():
        raise ConfigError("txnAppId must name the writer: its batches are written exactly once")
    if app_id is None and "txnVersion" in given:
        raise ConfigError("txnVersion is the number of a batch of a writer: name it with txnAppId")
    return WriteOptions(
        bootstrap=where.bootstrap,
        topic=topic or None,
        txn_app_id=app_id,
        txn_version=_whole(given["txnVersion"], "txnVersion") if "txnVersion" in given else None,
        encoding=encoding_of(given),
        producer=writer_settings(_client(given), prefix=_CLIENT),
    )


def partitions_json(offsets: Offsets) -> str:
    """Offsets per partition in the JSON of these options: {"topic": {"0": 23}}; of a classic cluster the keys are
    "broker-partition"."""
    nested: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        nested.setdefault(tp.topic, {})[tp.key] = offset
    return json.dumps(nested)


def parse_partitions_json(text: str, name: str = "offsets") -> dict[ClusterPartition, int]:
    """Return the reverse of `partitions_json`. Raises `ConfigError`."""
    example = 'like {"topic": {"0": 23, "1": -2}} (with "broker-partition" of a classic cluster)'
    found = _json(text, name, example)
    if not isinstance(found, dict) or not all(isinstance(inner, dict) for inner in found.values()):
        raise ConfigError(f"{name} must be JSON {example}, not {text!r}")
    result: dict[ClusterPartition, int] = {}
    for topic, inner in found.items():
        for partition, value in inner.items():
            tp = ClusterPartition.parse(topic, partition)
            if tp is None or not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} must be JSON {example}; {topic}: {partition!r}: {value!r} is not")
            result[tp] = value
    return result


def _known(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    by_lower = {name.lower(): name for name in names}
    given: dict[str, str] = {}
    for key, value in options.items():
        name = by_lower.get(key.lower())
        if name is not None:
            given[name] = value
        elif key.lower().startswith(_CLIENT) and key.lower() not in _WITHOUT_MEANING:
            given[key.lower()] = value
        elif key.lower() not in _WITHOUT_MEANING:
            near = get_close_matches(key.lower(), by_lower, n=1)
            hint = f"did you mean {by_lower[near[0]]}?" if near else "known are " + ", ".join(names)
            raise ConfigError(f"unknown option {key!r} for format 'barnabas'; {hint}")
    return given


def _where(given: Mapping[str, str]) -> Where:
    bootstrap = next((given[name] for name in _BOOTSTRAP if given.get(name, "").strip()), "")
    return Where.of(bootstrap, given, named=_BOOTSTRAP[0])


def _check_classic(given: Mapping[str, str], where: Where, selection: Selection) -> None:
    for name, reason in _NOT_CLASSIC.items():
        if name in given:
            raise ConfigError(f"{name} is not supported with a classic cluster: {reason}")
    if selection.pattern is not None and (where.bootstrap or where.broker_list):
        raise ConfigError("subscribePattern needs the registries of a classic cluster: give zk.connect or etcd.connect")


def _selection(given: Mapping[str, str]) -> Selection:
    chosen = [name for name in _SELECTORS if name in given]
    if len(chosen) != 1:
        had = " and ".join(chosen) or "none"
        raise ConfigError(f"give exactly one of the options subscribe, subscribePattern, assign; there was {had}")
    text = given[chosen[0]]
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise ConfigError("option 'subscribe' must name at least one topic; separate several by commas")
        return Selection(topics=topics)
    if chosen[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"option 'subscribePattern' is not a regular expression: {error}") from None
        return Selection(pattern=text)
    return Selection(partitions=_assigned(text))


def _assigned(text: str) -> tuple[ClusterPartition, ...]:
    example = 'like {"topic": [0, 1]}, or {"topic": ["0-0", "1-0"]} (broker-partition) of a classic cluster'
    found = _json(text, "assign", example)
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"assign must be JSON {example}, not {text!r}")
    result: list[ClusterPartition] = []
    for topic, keys in found.items():
        partitions = [_partition(topic, each) for each in keys] if isinstance(keys, list) else [None]
        if None in partitions:
            raise ConfigError(f"assign must be JSON {example}; {topic!r} has {keys!r}")
        result += [tp for tp in partitions if tp is not None]
    return tuple(dict.fromkeys(result))


def _partition(topic: str, key: Any) -> ClusterPartition | None:
    return ClusterPartition.parse(topic, str(key)) if type(key) in (int, str) else None


def _bound(given: Mapping[str, str], side: str, default: int, *, batch: bool) -> Bound:
    """Precedence as in Spark: one timestamp for all, then timestamps by partition, then offsets."""
    name = f"{side}Timestamp"
    if name in given:
        return Bound(timestamp_ms=_whole(given[name], name))
    name = f"{side}OffsetsByTimestamp"
    if name in given:
        return Bound(timestamps_ms=parse_partitions_json(given[name], name))
    name = f"{side}Offsets"
    text = given.get(name, "").strip()
    if not text:
        return Bound(default=default)
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    wrong = LATEST if side == "starting" else EARLIEST
    wrong_word = "latest" if side == "starting" else "earliest"
    if word is not None:
        if word == wrong and batch:
            raise ConfigError(f"{name} cannot be {wrong_word!r} in a batch read")
        return Bound(default=word)
    if not text.startswith("{"):
        raise ConfigError(f"{name} must be 'earliest', 'latest' or JSON, not {text!r}")
    offsets = parse_partitions_json(text, name)
    for partition, offset in offsets.items():
        if offset < EARLIEST or (offset == wrong and batch):
            raise ConfigError(f"{name} of {partition} cannot be {offset} ({wrong_word})")
    return Bound(offsets=offsets)


def _strategy(given: Mapping[str, str]) -> bool:
    text = given.get("startingOffsetsByTimestampStrategy", "error").lower()
    if text not in ("error", "latest"):
        raise ConfigError(f"startingOffsetsByTimestampStrategy must be 'error' or 'latest', not {text!r}")
    return text == "latest"


def _group(given: Mapping[str, str], *, batch: bool) -> str | None:
    name = given.get(COMMIT_TO_GROUP)
    if name is not None and not name.strip():
        raise ConfigError(f"{COMMIT_TO_GROUP} must name a consumer group")
    if name is not None and batch:
        raise ConfigError(
            f"{COMMIT_TO_GROUP} is for streams: a batch read does not learn when its rows are safe; "
            "load(..., group=...) and `barnabas load --group` do"
        )
    return name


def _skipping(given: Mapping[str, str]) -> dict[str, str]:
    return {} if _boolean(given, "failOnDamage", default=True) else {"skip.damaged": "true"}


def _bucket(given: Mapping[str, str]) -> dict[str, str]:
    return {REMOTE_STORAGE: given[REMOTE_STORAGE]} if REMOTE_STORAGE in given else {}


def _client(given: Mapping[str, str]) -> dict[str, str]:
    settings = {name.removeprefix(_CLIENT): value for name, value in given.items() if name.startswith(_CLIENT)}
    settings.pop("bootstrap.servers", None)
    return settings


def _json(text: str, name: str, example: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError(f"{name} must be JSON {example}, not {text!r}") from None


def _whole(text: str, name: str) -> int:
    if not re.fullmatch(r"\d+", text.strip()):
        raise ConfigError(f"{name} must be a whole number, not {text!r}")
    return int(text)


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    number = _whole(given[name], name)
    if number < 1:
        raise ConfigError(f"{name} must be at least 1, not {number}")
    return number


def _least(given: Mapping[str, str]) -> int | None:
    least, most = _positive(given, "minOffsetsPerTrigger"), _positive(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger ({least}) must not be more than maxOffsetsPerTrigger ({most})")
    return least


def _duration_s(text: str, name: str) -> float:
    """Return a time as Spark writes it: 250ms, 30s, 15m (or min), 2h, 1d; a bare number is of milliseconds."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or (match[2] or "ms") not in _UNITS_S:
        raise ConfigError(f"{name} must be a time like 250ms, 30s, 15m or 2h, not {text!r}")
    return int(match[1]) * _UNITS_S[match[2] or "ms"]


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} must be 'true' or 'false', not {text!r}")
    return text == "true"
