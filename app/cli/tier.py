"""`barnabas log tier status` and `barnabas topics restore`: what is in remote storage, and bringing it back."""

import re
from typing import Annotated, Any

import typer

from ...ports.errors import ConfigError
from ...ports.report import counted
from .command_config import connection_settings
from .options import AsJson, Bootstrap, print_json, print_table
from .tables import size_text

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
    as_json: AsJson = False,
) -> None:
    """Show per partition what the manifests in a remote storage say; needs no broker."""
    from ..compose.remote_storage import opened_for_command
    from ..mirror.restoring import read_partitions

    with opened_for_command(url) as storage:
        parts = read_partitions(storage)
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
        }
        for each in sorted(parts, key=lambda each: (each.manifest.topic.name, each.folder, each.manifest.partition))
        if topic in (None, each.manifest.topic.name)
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("topic", "id", "partition", "start", "end", "segments", "unfinished", "size", "leader epoch")
    print_table(columns, ([*list(row.values())[:7], size_text(row["bytes"]), row["leader_epoch"]] for row in rows))


def restore(
    bootstrap: Bootstrap,
    url: From,
    names: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", show_default=False)] = None,
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", metavar="HEX", help="Which one, where several had that name.")
    ] = None,
) -> None:
    """Bring topics back from remote storage alone, all of them without names: same offsets, batches and settings.

    The cluster must not have them. Groups get the offsets that they had in these topics at the last copy. What was not
    copied yet is not there.
    """
    from ..compose.remote_storage import opened_for_command
    from ..mirror.restoring import RemotePartition, TierRestore, read_partitions

    with opened_for_command(url) as storage:
        found: dict[str, dict[str, list[RemotePartition]]] = {}
        for each in read_partitions(storage):
            described = each.manifest.topic
            if (not names or described.name in names) and topic_id in (None, described.topic_id.hex()):
                found.setdefault(described.name, {}).setdefault(described.topic_id.hex(), []).append(each)
        missing = sorted({*(names or ())} - found.keys())
        if missing or not found:
            raise ConfigError(f"{url} has no topic {', '.join(missing)}".rstrip())
        for name, by_id in found.items():
            if len(by_id) > 1:
                raise ConfigError(f"{name} was there more than once, as {', '.join(by_id)}: give --topic-id")
        restoring = TierRestore(storage, {"bootstrap.servers": bootstrap, **connection_settings()})
        done = []
        try:
            for name, by_id in sorted(found.items()):
                (parts,) = by_id.values()
                made = restoring.restore(name, parts, lambda _: None)
                done.append(made)
                what = f"{counted(made.partitions, 'partition')}, {counted(made.offsets, 'offset')}"
                typer.echo(f"restored {re.sub(r'[^ -~]', '?', name)}: {what}, {size_text(made.bytes)}")
            for line in restoring.restore_groups(done):
                typer.echo(re.sub(r"[^ -~]", "?", line))
        finally:
            restoring.close()
