"""`barnabas brokers`: list and describe the brokers of a cluster."""

from typing import Annotated, Any

import typer

from ...ports.broker_api.cluster import BrokerNode, LogDirDescription
from ...ports.broker_api.configs import ConfigSource, ResourceKind
from ...ports.errors import ConfigError
from ...ports.report import counted
from .options import AsJson, Bootstrap, open_admin, print_json, print_table
from .tables import Section, list_text, show, size_text

brokers = typer.Typer(help="List and describe the brokers of a cluster.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(brokers, name="brokers")


@brokers.command("list")
def list_brokers(bootstrap: Bootstrap, as_json: AsJson = False) -> None:
    """List the live brokers, and which of them is the controller."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_cluster()
    rows = [_node(broker, found.controller_id) for broker in sorted(found.brokers, key=lambda each: each.node_id)]
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("broker", "address", "rack", "controller"),
            ((row["id"], row["address"], row["rack"] or "-", "yes" if row["controller"] else "-") for row in rows),
        )


@brokers.command("describe")
def describe_broker(
    bootstrap: Bootstrap,
    broker: Annotated[int, typer.Argument(metavar="ID")],
    as_json: AsJson = False,
) -> None:
    """Describe a broker: leaderships and replicas, data folders, settings that differ from the defaults."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_cluster()
        node = next((each for each in found.brokers if each.node_id == broker), None)
        if node is None:
            there = list_text(sorted(each.node_id for each in found.brokers))
            raise ConfigError(f"unknown broker {broker}; known brokers: {there}")
        topics = admin.describe_topics()
        folders = admin.describe_log_dirs([broker])[broker]
        settings = admin.describe_configs(ResourceKind.BROKER, broker)
    partitions = [partition for topic in topics for partition in topic.partitions]
    fields = {
        **_node(node, found.controller_id),
        "leaders": sum(partition.leader == broker for partition in partitions),
        "replicas": sum(broker in partition.replicas for partition in partitions),
        "in_sync": sum(broker in partition.isr for partition in partitions),
        "log_dirs": [_folder(folder) for folder in folders],
        "configs": {entry.name: entry.value for entry in settings if entry.source is not ConfigSource.DEFAULT},
    }
    if as_json:
        print_json(fields)
    else:
        show(_sections(fields))


def _node(node: BrokerNode, controller: int) -> dict[str, Any]:
    return {
        "id": node.node_id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack,
        "controller": node.node_id == controller,
    }


def _folder(folder: LogDirDescription) -> dict[str, Any]:
    return {
        "path": folder.path,
        "partitions": len(folder.replicas),
        "bytes": sum(replica.size_bytes for replica in folder.replicas),
        "lag": sum(replica.lag for replica in folder.replicas),
        "usable_bytes": folder.usable_bytes,
        "total_bytes": folder.total_bytes,
        "error": folder.error.name if folder.error else None,
    }


def _sections(fields: dict[str, Any]) -> list[Section]:
    rack = f", rack {fields['rack']}" if fields["rack"] else ""
    role = ", the controller" if fields["controller"] else ""
    held = f"leads {fields['leaders']} of {counted(fields['replicas'], 'partition')}, in sync in {fields['in_sync']}"
    columns = ("folder", "partitions", "size", "lag", "free", "state")
    rows = [
        (
            folder["path"],
            folder["partitions"],
            size_text(folder["bytes"]),
            folder["lag"],
            size_text(folder["usable_bytes"]),
            folder["error"] or "online",
        )
        for folder in fields["log_dirs"]
    ]
    configs = [(name, "-" if value is None else value) for name, value in fields["configs"].items()]
    return [
        Section(f"broker {fields['id']} at {fields['address']}{rack}{role}: {held}", columns, rows),
        Section(
            "settings that differ from the defaults" if configs else "all settings at their defaults",
            ("key", "value"),
            configs,
        ),
    ]
