"""Methods and attributes of other Kafka clients: their errors name the counterpart here.

Each name is a descriptor that raises `AttributeError`, so `hasattr` says no, type checkers know nothing of it, and the
access to other attributes costs what it did; `__getattr__` would slow every one of them.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NoReturn, TypeVar

from ....core.message.message import Message

ClassT = TypeVar("ClassT", bound=type)
Names = Mapping[str, str]
"""Name of another library → what to use here."""

_WITH = "a with block (async with in asyncio), or close()"
_NOT_NEEDED = "leave it out"
_TRANSACTION_OFFSETS = "send_offsets(consumer)"
_CLUSTER = "Admin(...).describe_cluster()"
_TOPICS = "Admin(...).list_topics() or describe_topics()"
_TOKENS = "the settings sasl.username and sasl.password, of another client"
_METRICS = "Producer.delivered and Producer.failed, Consumer.lag(), or the brokers' metrics"

PRODUCER: Names = {
    "produce": "send(topic, value, key=..., headers=..., timestamp_ms=..., on_delivery=...)",
    "produce_batch": "send_many(topic, values)",
    "poll": f"{_NOT_NEEDED}: callbacks run on the producer's own thread",
    "purge": "close(timeout=0), which fails the messages that wait",
    "send_and_wait": "send(...).result(timeout), or AsyncProducer.send_and_wait()",
    "send_offsets_to_transaction": _TRANSACTION_OFFSETS,
    "partitions_for": "partitions(topic), their number",
    "list_topics": _TOPICS,
    "cluster_id": _CLUSTER,
    "metrics": _METRICS,
    "bootstrap_connected": f"{_NOT_NEEDED}: calls name the broker that cannot be reached",
    "set_sasl_credentials": _TOKENS,
    "start": f"{_NOT_NEEDED}: a producer has started when it is made",
    "stop": _WITH,
    "create_batch": "send_many(topic, values)",
    "send_batch": "send_many(topic, values)",
}
"""The names of producers."""

CONSUMER: Names = {
    "consume": "poll_many(max_messages, timeout)",
    "getone": "poll(timeout), or for message in consumer",
    "getmany": "poll_many(max_messages, timeout)",
    "store_offsets": "enable_auto_commit=False, and commit(message)",
    "incremental_assign": "assign() with all partitions, or subscribe()",
    "incremental_unassign": "assign() with the partitions that remain, or subscribe()",
    "unassign": "unsubscribe()",
    "get_watermark_offsets": "beginning_offsets([(topic, partition)]) and end_offsets([(topic, partition)])",
    "seek_to_beginning": 'seek((topic, partition), "earliest")',
    "seek_to_end": 'seek((topic, partition), "latest")',
    "seek_to_committed": "seek((topic, partition), consumer.committed()[topic, partition].offset)",
    "highwater": "high_watermark((topic, partition))",
    "last_stable_offset": 'end_offsets() with isolation_level="read_committed"',
    "last_poll_timestamp": f"{_NOT_NEEDED}: max.poll.interval.ms bounds the time between two polls",
    "consumer_group_metadata": "group_metadata, a property; Producer.send_offsets(consumer) takes the consumer itself",
    "memberid": "group_metadata.member_id",
    "topics": _TOPICS,
    "list_topics": _TOPICS,
    "partitions_for_topic": "Admin(...).describe_topics([topic])",
    "cluster_id": _CLUSTER,
    "metrics": _METRICS,
    "bootstrap_connected": f"{_NOT_NEEDED}: calls name the broker that cannot be reached",
    "set_sasl_credentials": _TOKENS,
    "start": f"{_NOT_NEEDED}: a consumer has started when it is made",
    "stop": _WITH,
}
"""The names of consumers."""

_WRAPPED = "of the wrapped Consumer"
ASYNC_CONSUMER: Names = {
    **CONSUMER,
    "getone": "poll(timeout), or async for message in consumer",
    "seek_to_beginning": 'seek((topic, partition), "earliest")',
    "seek_to_end": 'seek((topic, partition), "latest")',
    "seek_to_committed": "seek((topic, partition), offset)",
    "highwater": f"consumer.high_watermark((topic, partition)), {_WRAPPED}",
}
"""The names of consumers in asyncio; the attribute `consumer` is the wrapped one."""

_GROUP_ASSIGNS = "subscribe(topics): the group assigns partitions, and leaders hand out messages"
_GROUP_OFFSETS = "the start offsets of the share group, which are those of all its members"
SHARE_CONSUMER: Names = {
    "consume": "poll_many(max_messages, timeout)",
    "acknowledge_offset": "acknowledge(message, kind)",
    "commit": "commit_sync() or commit_async()",
    "assign": _GROUP_ASSIGNS,
    "pause": f"{_NOT_NEEDED}: a consumer that asks for no messages gets none",
    "resume": f"{_NOT_NEEDED}: a consumer that asks for no messages gets none",
    "seek": _GROUP_OFFSETS,
    "position": _GROUP_OFFSETS,
    "committed": _GROUP_OFFSETS,
    "list_topics": _TOPICS,
    "set_sasl_credentials": _TOKENS,
    "start": f"{_NOT_NEEDED}: a consumer has started when it is made",
    "stop": _WITH,
}
"""The names of share consumers."""

_NO_CALL = "it has no counterpart; Apache Kafka's own tools have it"
ADMIN: Names = {
    "list_consumer_groups": "list_groups()",
    "delete_consumer_groups": "delete_groups(group_ids)",
    "list_consumer_group_offsets": "group_offsets(group_id)",
    "list_group_offsets": "group_offsets(group_id)",
    "alter_consumer_group_offsets": "alter_group_offsets(group_id, offsets)",
    "incremental_alter_configs": "alter_configs(kind, name, changes) or alter_topic_configs(name, changes)",
    "reset_configs": "alter_configs(kind, name, {key: None})",
    "alter_partition_reassignments": "reassign_partitions(replicas)",
    "list_partition_reassignments": "list_reassignments()",
    "list_partition_offsets": "list_offsets(places, time)",
    "perform_leader_election": "elect_leaders(places)",
    "describe_topic_partitions": "describe_topics(names)",
    "cluster_id": "describe_cluster().cluster_id",
    "get_broker_version_data": _NO_CALL,
    "api_versions": _NO_CALL,
    "describe_metadata_quorum": _NO_CALL,
    "alter_replica_log_dirs": _NO_CALL,
    "remove_group_members": "delete_groups(group_ids), once its members have left",
    "wait_for_topics": f"{_NOT_NEEDED}: create_topic() returns when the topic exists",
    "set_sasl_credentials": _TOKENS,
    "poll": f"{_NOT_NEEDED}: every call waits for its answer",
    "bootstrap_connected": f"{_NOT_NEEDED}: calls name the broker that cannot be reached",
    "start": f"{_NOT_NEEDED}: an admin client has started when it is made",
    "stop": _WITH,
}
"""The names of admin clients."""

MESSAGE: Names = {
    "timestamp": "message.timestamp_ms, without parentheses",
    "error": f"{_NOT_NEEDED}: the call that reads raises the error",
    "set_error": f"{_NOT_NEEDED}: the call that reads raises the error",
    "set_value": "message._replace(value=...)",
    "set_key": "message._replace(key=...)",
    "set_headers": "message._replace(headers=...)",
    "set_topic": "message._replace(topic=...)",
    "latency": "the time between send() and its on_delivery=",
    "leader_epoch": "Consumer.committed() has the leader epochs of offsets",
    "serialized_key_size": "len(message.key), of bytes",
    "serialized_value_size": "len(message.value), of bytes",
    "serialized_header_size": "the lengths of message.headers",
    "checksum": f"{_NOT_NEEDED}: readers check the checksums of batches",
    "deserialized_key": "message.key, which key_decoder= makes",
    "deserialized_value": "message.value, which decoder= makes",
    "delivery_count": "a ShareConsumer, whose messages have it: message.delivery_count, without parentheses",
}
"""The names of messages. Attributes have no parentheses: `message.value`, not `message.value()`."""

HANDLE: Names = {
    "get": "result(timeout)",
    "is_done": "the property done",
    "succeeded": "result(timeout), which raises the error of a message that failed",
    "failed": "result(timeout), which raises the error of a message that failed",
    "exception": "result(timeout), which raises the error of a message that failed",
    "add_errback": "on_delivery= of send(), a function of the error and the delivery",
    "add_both": "on_delivery= of send(), a function of the error and the delivery",
}
"""The names of what `send` returns."""

KEYWORDS: Mapping[str, Names] = {
    "poll": {
        "timeout_ms": "timeout= in seconds, for one message, or poll_many(max_messages, timeout) for a list",
        "max_records": "poll_many(max_messages, timeout)",
        "num_messages": "poll_many(max_messages, timeout)",
    },
    "subscribe": {
        "on_assign": "on_assigned=, a function of the partitions",
        "on_revoke": "on_revoked=, a function of the partitions",
    },
    "commit": {
        "message": "commit(message), without a keyword",
        "offsets": "commit({(topic, partition): offset}), without a keyword",
        "asynchronous": "commit(), which waits, or commit_async(), which does not",
        "timeout_ms": "timeout= in seconds",
    },
    "committed": {"metadata": "committed(), which returns metadata, too", "timeout_ms": "timeout= in seconds"},
    "close": {"autocommit": "auto_commit=", "timeout_ms": "timeout= in seconds"},
}
"""Method of a consumer → keyword of another library → what to use here."""


class ForeignName:
    """A name of another library on one of our classes; reading it raises `AttributeError` with the counterpart."""

    def __init__(self, owner: type, name: str, counterpart: str) -> None:
        self._owner = owner
        self._name = name
        self._counterpart = counterpart

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        verb = "" if self._counterpart.startswith((_NOT_NEEDED, _NO_CALL)) else "use "
        raise AttributeError(
            f"{self._owner.__name__} has no {self._name!r}, a name of other Kafka clients; {verb}{self._counterpart}"
        )


def explain_foreign_names(names: Names, keywords: Mapping[str, Names] | None = None) -> Callable[[ClassT], ClassT]:
    """Make the errors for names of other libraries name the counterpart in this class.

    names:    attributes and methods; those that the class has itself are left as they are.
    keywords: method → keyword → counterpart.
    """

    def changed(kind: ClassT) -> ClassT:
        foreign = [name for name in names if not hasattr(kind, name)]
        for name in foreign:
            setattr(kind, name, ForeignName(kind, name, names[name]))
        for method, of_method in (keywords or {}).items():
            setattr(kind, method, _explained(getattr(kind, method), of_method))

        def own_names(self: object) -> list[str]:
            return [name for name in object.__dir__(self) if name not in foreign]

        setattr(kind, "__dir__", own_names)  # noqa: B010  # for mypy, which knows no other type of it
        return kind

    return changed


def _explained(method: Callable[..., Any], counterparts: Names) -> Callable[..., Any]:
    @wraps(method)
    def explained(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except TypeError:
            for name in kwargs:
                if name in counterparts:
                    raise TypeError(
                        f"{method.__name__}() has no {name!r}, a name of other Kafka clients; use {counterparts[name]}"
                    ) from None
            raise

    return explained


explain_foreign_names(MESSAGE)(Message)
