"""Topics: the list, one topic's partitions and settings, and what changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from ... import BarnabasError, ConfigError, TopicPartition
from ...ports.broker_api.configs import ConfigEntry, ConfigSource, ResourceKind
from ...ports.broker_api.metadata import TopicMetadata
from ..application import PageCall, PageRoute
from ..connection import TopicRow
from ..paging import PageOfRows, sort_by
from ..rendering import segment

_SORTS = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replication_factor,
    "messages": lambda row: row.messages,
    "size": lambda row: row.size_bytes,
    "rate": lambda row: row.rate,
}
_PARTITIONS_PAGE = 200


def topics(call: PageCall) -> Response:
    """Show the topics, from the snapshot."""
    snapshot = call.connection.snapshot()
    wanted, internal = call.query("q").strip(), call.query("internal") == "1"
    rows: Sequence[TopicRow] = [
        row for row in snapshot.topics.values() if wanted.lower() in row.name.lower() and (internal or not row.internal)
    ]
    rows, sort = sort_by(rows, call.query("sort", "name"), _SORTS)
    hidden = 0 if internal else sum(row.internal for row in snapshot.topics.values())
    return call.page(
        "topics.html.j2",
        snapshot=snapshot,
        trouble=call.connection.snapshots.trouble,
        rows=PageOfRows(rows, call.number("page", 1, least=1)),
        sort=sort,
        wanted=wanted,
        internal=internal,
        hidden=hidden,
    )


def partitions(call: PageCall) -> Response:
    """Show the partitions of a topic: leaders, replicas, offsets, sizes."""
    topic = describe(call)
    number = call.number("page", 1, least=1)
    page = PageOfRows(sorted(topic.partitions, key=lambda each: each.partition), number, _PARTITIONS_PAGE)
    places = [TopicPartition(call.path("topic"), each.partition) for each in page.rows if each.leader >= 0]
    admin = call.connection.admin
    starts = admin.list_offsets(dict.fromkeys(places, "earliest"), skip_errors=True)
    ends = admin.list_offsets(dict.fromkeys(places, "latest"), skip_errors=True)
    stable = admin.list_offsets(dict.fromkeys(places, "latest"), isolation_level="read_committed", skip_errors=True)
    sizes = _replica_sizes(call, topic)
    rows = []
    for each in page.rows:
        tp = TopicPartition(call.path("topic"), each.partition)
        row = {
            "partition": each.partition,
            "leader": each.leader,
            "leader_epoch": each.leader_epoch,
            "replicas": [(node, node in each.isr, node in each.offline_replicas) for node in each.replicas],
            "start": starts.get(tp),
            "end": ends.get(tp),
            "open": None if tp not in stable or tp not in ends else ends[tp] - stable[tp],
            "size": None if sizes is None else sizes.get(each.partition),
        }
        rows.append(row)
    return call.page("topic_partitions.html.j2", topic=topic, tab="partitions", page=page, rows=rows)


def settings(call: PageCall) -> Response:
    """Show the settings of a topic, its own first, with defaults and documentation."""
    topic = describe(call)
    entries = call.connection.admin.describe_configs(ResourceKind.TOPIC, call.path("topic"), documentation=True)
    wanted = call.query("q").lower()
    shown = [entry for entry in entries if wanted in entry.name]
    own = [entry for entry in shown if entry.source is ConfigSource.TOPIC]
    others = [entry for entry in shown if entry.source is not ConfigSource.TOPIC]
    return call.page(
        "topic_settings.html.j2", topic=topic, tab="settings", own=own, others=others, default_of=default_of
    )


def ask_for_topic(call: PageCall) -> Response:
    """Show the form for a new topic."""
    given = {name: call.query(name) for name in ("name", "partitions", "replication", "settings")}
    return call.page("topic_create.html.j2", given=given, problem="")


def create_topic(call: PageCall) -> Response:
    """Create a topic; what the cluster refuses is shown in the form."""
    given = {name: call.form.get(name, "").strip() for name in ("name", "partitions", "replication", "settings")}
    try:
        configs = settings_of(given["settings"])
        with call.change(f"create topic {given['name']} {given['partitions']} {given['settings']}".rstrip()):
            call.connection.admin.create_topic(
                given["name"],
                partitions=whole(given["partitions"] or "-1", "partitions"),
                replication_factor=whole(given["replication"] or "-1", "replicas"),
                configs=configs,
            )
    except BarnabasError as error:
        return call.page("topic_create.html.j2", 400, given=given, problem=str(error))
    call.connection.snapshots.refresh()
    return call.redirect(f"/topics/{segment(given['name'])}", f"Topic {given['name']} was created.")


def change_setting(call: PageCall) -> Response:
    """Change one setting of a topic, or reset it to its default."""
    name, key = call.path("topic"), call.form.get("key", "").strip()
    value = None if call.form.get("reset") else call.form.get("value", "").strip()
    if not key:
        raise ConfigError("name the setting to change")
    what = f"reset {key} of topic {name}" if value is None else f"set {key}={value} of topic {name}"
    with call.change(what):
        call.connection.admin.alter_topic_configs(name, {key: value})
    done = f"{key} has its default again." if value is None else f"{key} is {value} now."
    return call.redirect(f"/topics/{segment(name)}/settings", done)


def manage(call: PageCall) -> Response:
    """Show what adds partitions to a topic, deletes its messages, or the topic."""
    return call.page("topic_manage.html.j2", topic=describe(call), tab="manage", problem="")


def add_partitions(call: PageCall) -> Response:
    """Add partitions to a topic."""
    name, count = call.path("topic"), whole(call.form.get("count", ""), "partitions")
    with call.change(f"extend topic {name} to {count} partitions"):
        call.connection.admin.create_partitions(name, count)
    call.connection.snapshots.refresh()
    return call.redirect(f"/topics/{segment(name)}", f"Topic {name} has {count} partitions now.")


def delete_topic(call: PageCall) -> Response:
    """Delete a topic whose name the user has typed."""
    name = call.path("topic")
    if call.form.get("name", "").strip() != name:
        problem = "The name that was typed is not that of the topic. Nothing was deleted."
        return call.page("topic_manage.html.j2", 400, topic=describe(call), tab="manage", problem=problem)
    with call.change(f"delete topic {name}"):
        call.connection.admin.delete_topic(name)
    call.connection.snapshots.refresh()
    return call.redirect("/topics", f"Topic {name} was deleted.")


def empty_topic(call: PageCall) -> Response:
    """Delete all messages of a topic whose name the user has typed."""
    name, topic = call.path("topic"), describe(call)
    if call.form.get("name", "").strip() != name:
        problem = "The name that was typed is not that of the topic. Nothing was deleted."
        return call.page("topic_manage.html.j2", 400, topic=topic, tab="manage", problem=problem)
    with call.change(f"delete all messages of topic {name}"):
        call.connection.admin.delete_records({TopicPartition(name, each.partition): -1 for each in topic.partitions})
    return call.redirect(f"/topics/{segment(name)}", f"All messages of {name} were deleted.")


def whole(given: str, what: str) -> int:
    """Return the whole number that a user wrote. Raises `ConfigError`."""
    try:
        return int(given)
    except ValueError:
        raise ConfigError(f"{what}: {given[:40]!r} is not a whole number") from None


def settings_of(text: str) -> dict[str, str | None]:
    """Parse lines KEY=VALUE. Raises `ConfigError`."""
    found: dict[str, str | None] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"settings: {line[:80]!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def describe(call: PageCall) -> TopicMetadata:
    """Return the topic in the path; it is not created by that. Raises `BarnabasError`."""
    return call.connection.admin.describe_topic(call.path("topic"))


def default_of(entry: ConfigEntry) -> str | None:
    """Return what a setting of a topic would be without the topic's own value, with the broker's key: KEY=VALUE."""
    found = next((each for each in entry.synonyms if each.source is not ConfigSource.TOPIC), None)
    return None if found is None else f"{found.name}={found.value}"


def _replica_sizes(call: PageCall, topic: TopicMetadata) -> dict[int, int] | None:
    """Return the bytes of each partition's largest replica; None where the user may not know them."""
    brokers = sorted({broker for each in topic.partitions for broker in each.replicas})
    alive = {row.node.node_id for row in call.connection.snapshot().brokers}
    wanted: Any = {topic.name or "": [each.partition for each in topic.partitions]}
    sizes: dict[int, int] = {}
    try:
        described = call.connection.admin.describe_log_dirs([each for each in brokers if each in alive], wanted)
    except BarnabasError:
        return None
    for folders in described.values():
        for replica in (replica for folder in folders for replica in folder.replicas):
            sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size_bytes)
    return sizes


PAGES = (
    PageRoute("/topics", topics),
    PageRoute("/create-topic", ask_for_topic),
    PageRoute("/create-topic", create_topic, ("POST",)),
    PageRoute("/topics/{topic}", partitions),
    PageRoute("/topics/{topic}/settings", settings),
    PageRoute("/topics/{topic}/settings", change_setting, ("POST",)),
    PageRoute("/topics/{topic}/manage", manage),
    PageRoute("/topics/{topic}/partitions", add_partitions, ("POST",)),
    PageRoute("/topics/{topic}/delete", delete_topic, ("POST",)),
    PageRoute("/topics/{topic}/empty", empty_topic, ("POST",)),
)
