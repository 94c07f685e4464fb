"""`barnabas import`: a data folder of Barnabas from those of Apache Kafka."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...core.cluster.layout import encode_id
from ...core.tree.service_url import redact_url
from ...ports.errors import ConfigError
from ...ports.report import counted
from ..logs import log_report
from .client_files import parse_settings
from .options import AsJson, DryRun, Settings, describe, print_json, print_table, progress
from .tables import size_text

if TYPE_CHECKING:
    from ...ports.coordination import Coordination
    from ...ports.storage import LogDir
    from ..config import BrokerConfig
    from ..kafka_import.carry_out import Imported
    from ..kafka_import.plan import ImportPlan, PlannedTopic
    from ..kafka_import.resuming import ImportMark
    from ..kafka_import.source import KafkaFolder

_COLUMNS = ("topic", "topic_id", "partitions", "from", "settings", "note")
_SHOWN = 10
_TARGET = re.compile(r"(\d+)=(.+)")


def register(app: typer.Typer) -> None:
    app.command("import")(import_data)


def import_data(
    sources: Annotated[
        list[Path], typer.Argument(metavar="KAFKA_DATA_DIR...", help="Folders of Kafka's log.dirs, of all brokers.")
    ],
    into: Annotated[
        list[str],
        typer.Option(
            "--into",
            metavar="[ID=]DIR",
            help="The new data folder, for 'barnabas serve --data DIR'; once for each broker of a cluster, with its "
            "id and --coordination.",
        ),
    ],
    broker_id: Annotated[int, typer.Option("--broker-id", metavar="N", help="The id of the broker of DIR.")] = 1,
    coordination: Annotated[
        str | None,
        typer.Option(
            "--coordination", metavar="URL", help="Coordination service of the brokers: zookeeper://, etcd://."
        ),
    ] = None,
    link: Annotated[
        bool,
        typer.Option("--link", help="Hard links to closed segments instead of copies: Kafka must not start again."),
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Begin partitions empty whose folders are not given.")
    ] = False,
    allow_left_out: Annotated[
        bool, typer.Option("--allow-left-out", help="Leave out topics that cannot be imported.")
    ] = False,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT/CHROOT", help="The ZooKeeper of Kafka, where it has no KRaft."),
    ] = None,
    dry_run: DryRun = False,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Copy the topics and settings of stopped Kafka brokers into a new data folder of Barnabas, or one for each broker.

    The folders of Kafka do not change. Offsets, topic ids, settings, ACLs, SCRAM credentials, quotas, offsets of groups
    and transactions stay as they are. --set: settings of the broker, as for 'serve'.
    """
    from ..compose.broker import plugin_host, system_entropy
    from ..compose.coordination import broker_backend
    from ..config import read_config
    from ..kafka_import.carry_out import Importer, finish, prepare_targets, size_of
    from ..kafka_import.resuming import Claim, Command, check_target
    from ..kafka_import.source import opened_source

    given: dict[str, object] = {**parse_settings(settings), **({"coordination": coordination} if coordination else {})}
    targets = _targets(into, broker_id)
    configs = {
        broker: read_config(None, {**given, "log.dirs": str(path), "broker.id": str(broker)})
        for broker, path in targets.items()
    }
    config = configs[min(configs)]
    shared = broker_backend(config, plugin_host(config)).shared
    if len(targets) > 1 and not shared:
        raise ConfigError("several --into need the coordination service of their brokers: --coordination URL")
    command = Command(
        sources=sorted(str(path.absolute()) for path in sources),
        targets={broker: str(path.absolute()) for broker, path in targets.items()},
        coordination=config.coordination,
        link=link,
        zookeeper=zookeeper,
    )
    marks = command.marks_in(targets)
    if not dry_run and _completed(marks, configs, as_json=as_json):
        return
    for path in targets.values():
        check_target(path)
    known_ids = {name: topic_id for mark in marks.values() for name, topic_id in mark.topic_ids.items()}
    with ExitStack() as opened:
        folders = [opened.enter_context(opened_source(path, log_report)) for path in sources]
        plan = _planned(folders, config, zookeeper, sorted(targets), known_ids)
        obstacles = _obstacles(plan, allow_missing=allow_missing, allow_left_out=allow_left_out)
        if dry_run or obstacles:
            _show(plan, None, as_json=as_json)
            for text in obstacles:
                typer.echo(f"barnabas: {text}", err=True)
            if obstacles:
                raise typer.Exit(1)
            return
        plan = plan.without_refused()
        log_dirs = {broker: opened.enter_context(_locked(own)) for broker, own in configs.items()}
        entropy = system_entropy()
        marks = prepare_targets(plan, command, targets, entropy, log_report)
        tree = opened.enter_context(_tree_of(config))
        claim = Claim.acquire(
            tree, entropy, marks[min(marks)], plan.cluster_id, redact_url(config.coordination), shared
        )
        with progress("bytes", size_of(plan)) as advance:
            importer = Importer(plan, config, log_dirs, marks, link=link, report=log_report, advance=advance)
            importer.copy_logs()
            importer.write_tree(tree, entropy, claim, shared=shared)
        finish(claim.cluster_id, log_dirs, marks, tree)
        _show(plan, importer.done, as_json=as_json)
        if not as_json:
            for broker, path in sorted(targets.items()):
                more = f" --set broker.id={broker}" if broker != 1 or shared else ""
                more += f" --set coordination={config.coordination}" if shared else ""
                typer.echo(f"start it with: barnabas serve --data {path}{more}")


def _targets(into: Sequence[str], broker_id: int) -> dict[int, Path]:
    """Return the data folder of each broker. Raises `ConfigError`."""
    if len(into) == 1 and not _TARGET.fullmatch(into[0]):
        return {broker_id: Path(into[0])}
    targets: dict[int, Path] = {}
    for text in into:
        found = _TARGET.fullmatch(text)
        if found is None:
            raise ConfigError(f"--into {text}: several folders have the ids of their brokers, as in --into 1={text}")
        if int(found[1]) in targets:
            raise ConfigError(f"--into {text}: broker {found[1]} has a folder already")
        targets[int(found[1])] = Path(found[2])
    return targets


def _planned(
    folders: Sequence[KafkaFolder],
    config: BrokerConfig,
    zookeeper: str | None,
    brokers: Sequence[int],
    known_ids: Mapping[str, bytes],
) -> ImportPlan:
    from ...core.kraft.image import read_zookeeper
    from ..compose.broker import plugin_host, system_entropy
    from ..compose.coordination import client_coordination
    from ..kafka_import.plan import plan_import, topic_ids_of
    from ..kafka_import.source import read_metadata

    entropy = system_entropy()
    image = read_metadata(folders, plugin_host(config).codecs())
    if zookeeper is not None:
        if image is not None:
            raise ConfigError("--zookeeper: the folders have a metadata log of KRaft, which counts")
        with closing(client_coordination(f"zookeeper://{zookeeper}", report=log_report)) as nodes:
            image = read_zookeeper(nodes, topic_ids_of(folders, entropy, known_ids))
    return plan_import(folders, image, config, entropy, log_report, brokers, known_ids)


def _completed(marks: Mapping[int, ImportMark], configs: Mapping[int, BrokerConfig], *, as_json: bool) -> bool:
    """Remove the last marks of an import that was interrupted after its tree was complete; False: it was not."""
    from ..kafka_import.carry_out import finish

    cluster_id = next((mark.cluster_id for mark in marks.values() if mark.cluster_id is not None), None)
    if cluster_id is None:
        return False
    with ExitStack() as opened:
        log_dirs = {broker: opened.enter_context(_locked(configs[broker])) for broker in marks}
        finish(cluster_id, log_dirs, marks, opened.enter_context(_tree_of(configs[min(configs)])))
    if as_json:
        print_json({"cluster_id": cluster_id, "executed": True, "copied": None})
    else:
        some = ", ".join(map(str, sorted(marks)))
        typer.echo(f"the interrupted import was complete; the data folder of broker {some} is now marked as such")
    return True


def _locked(config: BrokerConfig) -> AbstractContextManager[LogDir]:
    from ..compose.broker import open_log_dirs_of

    (log_dir,) = open_log_dirs_of(config)
    return closing(log_dir)


def _tree_of(config: BrokerConfig) -> AbstractContextManager[Coordination]:
    from ..compose.broker import plugin_host
    from ..compose.coordination import broker_backend, broker_session_request

    return closing(broker_backend(config, plugin_host(config)).open(broker_session_request(config, log_report)))


def _obstacles(plan: ImportPlan, *, allow_missing: bool, allow_left_out: bool) -> list[str]:
    """Return why nothing is imported; empty: nothing is in the way."""
    found = []
    if plan.refusals and not allow_left_out:
        names = ", ".join(topic.name for topic in plan.refusals[:_SHOWN])
        text = f"{counted(len(plan.refusals), 'topic')} cannot be imported: {names}"
        found.append(f"{text}; --allow-left-out imports the others")
    missing = [f"{topic.name}-{number}" for topic in plan.topics if not topic.refused for number in topic.missing]
    if missing and not allow_missing:
        some = ", ".join(missing[:_SHOWN])
        text = f"{counted(len(missing), 'partition has', 'partitions have')} no folder here: {some}"
        found.append(f"{text}; give the folders of all brokers, or --allow-missing to begin them empty")
    return found


def _show(plan: ImportPlan, done: Imported | None, *, as_json: bool) -> None:
    rows = [_row(topic) for topic in plan.topics]
    kinds = Counter(kind.value for kind, _ in plan.entities)
    if as_json:
        print_json(
            {
                "cluster_id": plan.cluster_id,
                "executed": done is not None,
                "topics": rows,
                "entities": kinds,
                "broker_configs": dict(plan.broker_configs),
                "features": dict(plan.features),
                "next_producer_id": plan.next_producer_id if done is None else done.next_producer_id,
                "notes": list(plan.notes),
                "copied": None
                if done is None
                else {
                    "partitions": done.partitions,
                    "copied_before": done.copied_before,
                    "bytes": done.bytes,
                    "linked_segments": done.linked,
                    "converted_segments": done.converted,
                },
            }
        )
        return
    print_table(_COLUMNS, ([row[column] for column in _COLUMNS] for row in rows))
    typer.echo("")
    counts = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items())) or "none"
    typer.echo(f"cluster {plan.cluster_id or '(a new id)'}; nodes of security and groups: {counts}")
    for note in plan.notes:
        typer.echo(f"- {note}")
    if done is None:
        typer.echo("nothing was changed", err=True)
    else:
        linked = f", {counted(done.linked, 'segment')} linked" if done.linked else ""
        converted = f", {counted(done.converted, 'segment')} converted" if done.converted else ""
        earlier = f" ({done.copied_before} of an interrupted import)" if done.copied_before else ""
        what = f"{counted(done.partitions, 'partition')}{earlier}"
        typer.echo(f"imported {what}, {size_text(done.bytes)} copied{linked}{converted}")


def _row(topic: PlannedTopic) -> dict[str, object]:
    folders = sorted({str(replica.source.path) for replica in topic.replicas.values()})
    missing = f"no folder of partitions {', '.join(map(str, topic.missing[:_SHOWN]))}" if topic.missing else ""
    converted = f"{counted(topic.legacy_count, 'segment')} converted to record batches" if topic.legacy else ""
    return {
        "topic": topic.name,
        "topic_id": encode_id(topic.topic_id),
        "partitions": topic.partition_count,
        "from": ", ".join(folders) or "-",
        "settings": describe(topic.configs) or "-",
        "note": topic.refused or missing or converted or "-",
    }
