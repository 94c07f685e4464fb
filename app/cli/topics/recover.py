"""`barnabas topics recover`: rebuilds a lost coordination tree from the folders of a stopped broker."""

from pathlib import Path
from typing import Annotated

import typer

from ....ports.errors import ConfigError
from ..options import AsJson, Settings, parse_settings, print_json, print_table

_COLUMNS = ("topic", "topic_id", "partitions", "action", "note")


def add_recover_command(topics: typer.Typer) -> None:
    topics.command("recover")(recover)


def recover(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The broker's data folder, as for 'serve'.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration (TOML).")] = None,
    settings: Settings = None,
    execute: Annotated[bool, typer.Option("--execute", help="Execute; the default only shows the plan.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the topics in the folders of a stopped broker that its coordination tree lacks; with --execute create them
    there.

    Folders do not change, nor do topics of the tree, except for missing partitions. Folders do not have the settings of
    their topics: set those again that differ from the defaults. Give --config and --set as for 'serve'.
    """
    from ....core.cluster.change_queue import complete
    from ....core.cluster.layout import encode_id
    from ....core.cluster.registry import ClusterRegistry
    from ...broker.lifecycle.topic_recovery import REFUSE, carry_out, check_no_live_brokers, plan_recovery
    from ...compose.broker import system_entropy
    from ...config import read_config
    from ...logs import log_report
    from ...offline import opened_offline

    given = parse_settings(settings)
    if data is not None:
        given["log.dirs"] = str(data)
    broker = read_config(config, given)
    if broker.coordination == "memory":
        raise ConfigError("coordination=memory loses all topics at every stop: there is no tree to recover")
    entropy = system_entropy()
    with opened_offline(broker, log_report, to_write=execute) as (log_dirs, coordination):
        check_no_live_brokers(coordination, log_report)
        registry = ClusterRegistry(coordination, log_report)
        complete(registry.load())
        plan = plan_recovery(log_dirs, broker, registry, entropy, log_report)
        if execute:
            carry_out(plan, registry, entropy)
    rows: list[dict[str, object]] = [
        {
            "topic": found.name,
            "topic_id": encode_id(found.topic.topic_id) if found.topic is not None else None,
            "partitions": len(found.topic.partitions) if found.topic is not None else None,
            "action": found.action,
            "note": found.note,
        }
        for found in plan.topics
    ]
    if as_json:
        print_json({"cluster_id": plan.cluster_id, "executed": execute, "topics": rows})
    else:
        _show(rows, execute=execute)
    if any(found.action == REFUSE for found in plan.topics):
        raise typer.Exit(1)


def _show(rows: list[dict[str, object]], *, execute: bool) -> None:
    if not rows:
        typer.echo("the coordination tree knows all topics that have folders", err=True)
        return
    print_table(_COLUMNS, ([row[column] or "-" for column in _COLUMNS] for row in rows))
    if not execute:
        typer.echo("nothing was changed; the same with --execute does it", err=True)
