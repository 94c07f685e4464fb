"""`barnabas log tier status`, `barnabas topics restore` and `open-remote`: what is in remote storage, and its use."""

import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...core.tree.service_url import redact_url
from ...ports.errors import ConfigError
from ...ports.report import counted
from ...ports.types import TopicPartition
from .command_config import connection_settings
from .options import AsJson, Bootstrap, print_json, print_table, progress
from .tables import size_text
from .times import age_text

if TYPE_CHECKING:
    from ...ports.remote_storage import RemoteStorage
    from ..mirror.restoring import RemotePartition, RestoredTopic

tier = typer.Typer(help="Show what is in remote storage.", no_args_is_help=True)

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="URL",
        help="The remote storage: s3://BUCKET/PREFIX or file:///PATH. Keys and endpoint of S3 come from the "
        "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT, AWS_REGION).",
    ),
]


@tier.command()
def status(
    url: From,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this one.")] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help="A broker of the cluster that copies there: shows what is on local disks, and what is not copied yet.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show per partition what the manifests in a remote storage say. Needs no broker.

    With --bootstrap also from which offset on local disks have the log, its end, how many offsets are not copied yet
    (at least those of the active segment), for how long the oldest of them has waited, and the local bytes.
    """
    from ..compose.remote_storage import opened_for_command
    from ..mirror.restoring import read_partitions

    with opened_for_command(url) as storage:
        parts = read_partitions(storage)
    local = {} if bootstrap is None else _local(bootstrap, {each.manifest.topic.name for each in parts})
    rows: list[dict[str, Any]] = [
        {
            "topic": each.manifest.topic.name,
            "id": each.manifest.topic.topic_id.hex(),
            "partition": each.manifest.partition,
            "start": each.manifest.log_start,
            "end": each.manifest.end,
            "segments": len(each.manifest.readable),
            "unfinished": len(each.manifest.segments) - len(each.manifest.readable),
            "bytes": each.size,
            "leader_epoch": each.manifest.leader_epoch,
            **local.get((bytes(each.manifest.topic.topic_id), each.manifest.partition), {}),
        }
        for each in sorted(parts, key=lambda each: (each.manifest.topic.name, each.folder, each.manifest.partition))
        if topic in (None, each.manifest.topic.name)
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        typer.echo(f"barnabas: {redact_url(url)} has no topic{f' {topic}' if topic else ''}", err=True)
    columns = ["topic", "id", "partition", "start", "end", "segments", "unfinished", "size", "leader epoch"]
    more = ["local start", "log end", "not copied", "waiting", "local size"] if bootstrap is not None else []
    print_table([*columns, *more], ([*_stored_cells(row), *_local_cells(row)[: len(more)]] for row in rows))


def _stored_cells(row: Mapping[str, Any]) -> list[object]:
    return [*list(row.values())[:7], size_text(row["bytes"]), row["leader_epoch"]]


def _local_cells(row: Mapping[str, Any]) -> list[object]:
    """Return what the cluster says; `-` for what it does not, and for a topic that is not in it."""
    offsets = [row.get(name) for name in ("local_start", "log_end", "not_copied")]
    waiting, size = row.get("waiting_ms"), row.get("local_bytes")
    ages = [None if waiting is None else age_text(waiting).replace(" ", ""), None if size is None else size_text(size)]
    return ["-" if each is None else each for each in (*offsets, *ages)]


def _local(bootstrap: str, names: set[str]) -> dict[tuple[bytes, int], dict[str, int | None]]:
    """Return what the cluster says of the tiered topics among these, by topic id and partition."""
    from ..tiers import read_tiers
    from .options import open_admin

    with open_admin(bootstrap) as admin:
        topics = [each for each in admin.describe_topics() if each.name in names]
        snapshot = read_tiers(admin, topics, None)
    ids = {each.name: bytes(each.topic_id) for each in topics}
    return {
        (ids[topic.name], each.partition): {
            "local_start": each.local_start,
            "log_end": each.end,
            "not_copied": each.local_only if each.is_known else None,
            "waiting_ms": None if each.waiting_since_ms is None else max(0, snapshot.taken_ms - each.waiting_since_ms),
            "local_bytes": each.local_bytes,
        }
        for topic in snapshot.topics
        for each in topic.partitions
    }


def restore(
    bootstrap: Bootstrap,
    url: From,
    names: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", show_default=False)] = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", metavar="HEX", help="Which one, where several had that name.")
    ] = None,
) -> None:
    """Bring topics back from remote storage alone, all of them without names: same offsets, batches and settings.

    Groups get the offsets that they had in these topics at the last copy. What was not copied yet is not there. The
    cluster must not have other topics of these names. A restore that was interrupted continues with the same command.
    """
    from ..compose.remote_storage import opened_for_command
    from ..mirror.restoring import TierRestore

    with (
        opened_for_command(url) as storage,
        closing(TierRestore(storage, {"bootstrap.servers": bootstrap, **connection_settings()})) as restoring,
    ):
        found = topics_in(storage, url, names or [], topic_id, restoring.topic_ids)
        total = sum(_size(parts) for parts in found.values())
        try:
            with progress("bytes", total) as advance:
                done = 0

                def moved(size: int) -> None:
                    nonlocal done
                    done += size
                    advance(done)

                for name, parts in sorted(found.items()):
                    made = restoring.restore(name, parts, moved)
                    if made.was_complete:
                        moved(_size(parts))
                    for line in (_restored(made), *made.notes):
                        typer.echo(re.sub(r"[^ -~]", "?", line))
        except BaseException:
            typer.echo("barnabas: the restore is not complete; the same command continues it", err=True)
            raise


def _restored(made: "RestoredTopic") -> str:
    if made.was_complete:
        return f"{made.topic} already exists in the cluster, with all that was copied"
    what = f"{counted(made.partitions, 'partition')}, {counted(made.offsets, 'offset')}"
    before = f", {size_text(made.bytes_before)} of them before" if made.bytes_before else ""
    groups = f", offsets of {counted(made.groups, 'group')}" if made.groups else ""
    return f"restored {made.topic}: {what}, {size_text(made.bytes)}{before}{groups}"


def open_remote(
    bootstrap: Bootstrap,
    url: From,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Its name here; unset: the same.")] = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", metavar="HEX", help="Which one, where several have that name.")
    ] = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", metavar="N", help="Brokers that may lead; -1: as they are set.")
    ] = -1,
) -> None:
    """Open a topic of another cluster read-only, in the remote storage that both have: nothing is copied.

    It has what the other cluster has copied to there, and follows it. The brokers must have the same remote storage
    (remote.log.storage.manager.class.name); what is there never changes by this topic.
    """
    from ...core.tiering.manifest import topic_folder
    from ..clients.admin.admin import Admin
    from ..compose.remote_storage import opened_for_command

    with opened_for_command(url) as storage:
        parts = topics_in(storage, url, [topic], topic_id)[topic]
    newest = max(parts, key=lambda each: each.manifest.changes).manifest.topic
    count = max([newest.partitions, *(each.manifest.partition + 1 for each in parts)])
    name = name or topic
    with Admin(config={"bootstrap.servers": bootstrap, **connection_settings()}) as admin:
        source = {"remote.storage.source": topic_folder(newest.name, newest.topic_id)}
        admin.create_topic(name, partitions=count, replication_factor=replication_factor, configs=source)
        wanted = {TopicPartition(name, each.manifest.partition): each.manifest.readable_range[1] for each in parts}
        deadline = time.monotonic() + _PATIENCE_S
        while any(end < wanted[tp] for tp, end in admin.list_offsets(dict.fromkeys(wanted, "latest")).items()):
            if time.monotonic() > deadline:
                text = f"topic {name} was created, but its brokers did not read {url} within {_PATIENCE_S:g} s"
                raise ConfigError(f"{text}; check remote.log.storage.manager.class.name, and the logs of the brokers")
            time.sleep(_AGAIN_S)
    shown = re.sub(r"[^ -~]", "?", name)
    typer.echo(f"opened {shown}, read-only: {counted(count, 'partition')}, up to now {size_text(_size(parts))}")


_PATIENCE_S = 60.0
_AGAIN_S = 0.1


def _size(parts: "list[RemotePartition]") -> int:
    return sum(each.size for each in parts)


def topics_in(
    storage: "RemoteStorage",
    url: str,
    names: list[str],
    topic_id: str | None,
    own_ids: Callable[[], Collection[str]] = tuple,
) -> "dict[str, list[RemotePartition]]":
    """Return the partitions of the topics with these names, of all without names. Raises `ConfigError`.

    `own_ids` returns the ids of topics that the cluster itself has: where a topic of the store was restored into a
    cluster with the same store, the one to restore is the other one.
    """
    from ..mirror.restoring import read_partitions

    found: dict[str, dict[str, list[RemotePartition]]] = {}
    for each in read_partitions(storage):
        described = each.manifest.topic
        if (not names or described.name in names) and topic_id in (None, described.topic_id.hex()):
            found.setdefault(described.name, {}).setdefault(described.topic_id.hex(), []).append(each)
    missing = sorted({*names} - found.keys())
    if missing or not found:
        raise ConfigError(f"{url} has no topic {', '.join(missing)}".rstrip())
    for name, by_id in found.items():
        if len(by_id) > 1:
            for own in {*own_ids()} & by_id.keys():
                del by_id[own]
        if len(by_id) > 1:
            raise ConfigError(
                f"several topics in remote storage are named {name}: give one of --topic-id {', '.join(by_id)}"
            )
    return {name: next(iter(by_id.values())) for name, by_id in found.items()}
