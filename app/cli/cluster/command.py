"""`barnabas cluster`: run brokers on this machine; show a cluster, reassign partitions, elect leaders, set features.

`barnabas cluster features` shows and changes the finalized levels of features, after Kafka's kafka-features.sh.
`barnabas cluster reassign` moves partitions to other brokers, with the file format of Kafka's own tool.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from time import sleep, strftime
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ....ports.broker_api.features import UpgradeType
from ....ports.error_codes import ErrorCode
from ....ports.errors import BarnabasError, ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ..client_files import parse_settings
from ..command_config import use_command_config
from ..options import AsJson, Bootstrap, Settings, open_admin, print_json, print_table, progress
from ..profiles import BOOTSTRAP_VARIABLE
from ..tables import Section, framed, list_text, show, size_text
from .status import NO_NODE, ClusterStatus, PartitionStatus, ask_status

if TYPE_CHECKING:
    from typing import TextIO

    from ...clients.admin.admin import Admin
    from ...clients.admin.reassignments import ReplicaAssignment
    from ...config import BrokerConfig
    from ...secure_start import SecureFolder


reassign = typer.Typer(help="Plan, execute, verify and cancel moves of partitions.", no_args_is_help=True)

LOOK_S, BELIEVED_S = 0.2, 2.0

File = Annotated[Path, typer.Argument(metavar="FILE", help="Output of `plan`; - is standard input.")]


@reassign.command("plan")
def plan(
    bootstrap: Bootstrap,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="TOPIC,...", help="Topics to reassign; default: all.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="ID,...", help="Target brokers; default: all but drained ones.")
    ] = None,
    add: Annotated[
        str | None,
        typer.Option("--add", metavar="ID,...", help="New brokers, in addition to those that have replicas already."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, help="Replicas of each partition; default: unchanged."),
    ] = None,
) -> None:
    """Print an assignment with equal shares for all brokers and few moves. Changes nothing.

    `--add 4` gives a new broker its share. To empty a broker: `barnabas brokers drain`. Standard output is JSON for
    `execute` (and for kafka-reassign-partitions); standard error says what would move.
    """
    from ...clients.admin.reassignments import current_assignment, moved, planned, racks_of, replica_sizes, to_json

    if brokers is not None and add is not None:
        raise ConfigError("give --brokers or --add, not both")
    with open_admin(bootstrap) as admin:
        current = current_assignment(admin, None if topics is None else _words(topics))
        log_dirs = admin.describe_log_dirs()
        racks = racks_of(admin.describe_cluster().brokers)
    sizes = replica_sizes(log_dirs)
    cordoned = {broker for broker, folders in log_dirs.items() if all(each.is_cordoned for each in folders)}
    if brokers is not None:
        wanted = _chosen("--brokers", brokers, racks)
    elif add is not None:
        holders = {broker for held in current.values() for broker in held} - cordoned
        wanted = {each: rack for each, rack in racks.items() if each in holders} | _chosen("--add", add, racks)
    else:
        wanted = {each: rack for each, rack in racks.items() if each not in cordoned}
    refused = sorted(cordoned & wanted.keys())
    if refused:
        text = f"broker {refused[0]} is drained, so it gets no replicas"
        raise ConfigError(f"{text}; 'barnabas brokers drain {refused[0]} --cancel' ends that")
    proposed = planned(current, wanted, replication_factor)
    changed = {tp: held for tp, held in proposed.items() if tuple(held) != tuple(current[tp])}
    copies = moved(current, proposed)
    size = sum(sizes.get(tp, 0) for tp, _ in copies)
    change = f"{len(changed)} of {counted(len(current), 'partition')} {'changes' if len(changed) == 1 else 'change'}"
    typer.echo(f"{change}, {counted(len(copies), 'replica')} with {size:,} bytes to copy", err=True)
    typer.echo(to_json(proposed))


@reassign.command("execute")
def execute(
    bootstrap: Bootstrap,
    file: File,
    throttle: Annotated[
        int | None,
        typer.Option(metavar="BYTES", min=1, help="Maximum rate per second for copies to and from each broker."),
    ] = None,
) -> None:
    """Start a reassignment and return at once. Standard output is the assignment before; `execute` it to go back.

    The throttle remains until `verify` finds the reassignment complete.
    """
    from ...clients.admin.reassignments import current_assignment, set_throttle, to_json

    wanted = _read_assignment(file)
    with open_admin(bootstrap) as admin:
        current = current_assignment(admin, sorted({tp.topic for tp in wanted}))
        _check_known(wanted, current)
        if throttle is not None:
            set_throttle(admin, wanted, current, throttle)
        admin.reassign_partitions(wanted)
    typer.echo(
        "the assignment before, as JSON on standard output; save it: `execute` with it is the way back", err=True
    )
    typer.echo(to_json({tp: current[tp] for tp in wanted}))
    more = "" if throttle is None else "; `barnabas cluster reassign verify` takes the throttle off at the end"
    typer.echo(f"{counted(len(wanted), 'partition is on its way', 'partitions are on their way')}{more}", err=True)


@reassign.command("verify")
def verify(
    bootstrap: Bootstrap,
    file: File,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the reassignment has completed.")] = False,
    preserve_throttles: Annotated[
        bool, typer.Option("--preserve-throttles", help="Do not remove the throttle after completion.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress of the moves. Ends with 0 when all are complete (and removes the throttle), else with 1."""
    from ...clients.admin.reassignments import remove_throttle

    wanted = _read_assignment(file)
    with open_admin(bootstrap) as admin:
        states = _wait(admin, wanted) if wait else _settled(admin, wanted)
        moving = any(state == "moving" for state in states.values())
        if not moving and not preserve_throttles:
            remove_throttle(admin, {tp.topic for tp in wanted})
    rows = [(tp.topic, tp.partition, list(wanted[tp]), state) for tp, state in sorted(states.items())]
    columns = ("topic", "partition", "replicas", "state")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, ((topic, partition, list_text(held), state) for topic, partition, held, state in rows))
    if any(state != "done" for state in states.values()):
        raise typer.Exit(1)


@reassign.command("cancel")
def cancel(
    bootstrap: Bootstrap,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Output of `plan`.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All running moves.")] = False,
) -> None:
    """Cancel moves that are not complete: their previous replicas remain."""
    from ...clients.admin.reassignments import remove_throttle

    if everything == (file is not None):
        raise ConfigError("select the moves with FILE, or --all")
    with open_admin(bootstrap) as admin:
        moving = [TopicPartition(move.topic, move.partition) for move in admin.list_reassignments()]
        given = None if file is None else _read_assignment(file)
        chosen = [tp for tp in moving if given is None or tp in given]
        if chosen:
            admin.reassign_partitions(dict.fromkeys(chosen))
        remove_throttle(admin, {tp.topic for tp in (chosen if given is None else given)})
    typer.echo(f"{counted(len(chosen), 'move')} cancelled")


def _words(text: str) -> list[str]:
    return sorted({word.strip() for word in text.split(",") if word.strip()})


def _chosen(option: str, text: str, racks: Mapping[int, str | None]) -> dict[int, str | None]:
    """Select brokers by id. Raises `ConfigError` for an unknown one."""
    words = _words(text)
    unknown = [word for word in words if not word.isdigit() or int(word) not in racks]
    if unknown or not words:
        raise ConfigError(
            f"{option} {text}: unknown broker {', '.join(unknown)}; known brokers: {list_text(sorted(racks))}"
        )
    return {int(word): racks[int(word)] for word in words}


def _read_assignment(file: Path) -> dict[TopicPartition, tuple[int, ...]]:
    from ...clients.admin.reassignments import from_json

    if str(file) == "-":
        return from_json(sys.stdin.read(), "standard input")
    return from_json(file.read_bytes(), str(file))


def _check_known(wanted: ReplicaAssignment, current: ReplicaAssignment) -> None:
    unknown = sorted(str(tp) for tp in wanted if tp not in current)
    if unknown:
        raise ConfigError(f"unknown partition {', '.join(unknown)}")


def _states(admin: Admin, wanted: ReplicaAssignment) -> dict[TopicPartition, str]:
    """Return "done", "moving", "other replicas" (without a move) or "no such partition" for each partition."""
    from ...clients.admin.reassignments import current_assignment

    moving = {TopicPartition(move.topic, move.partition) for move in admin.list_reassignments()}
    there = set(admin.list_topics(internal=True))
    current = current_assignment(admin, sorted({tp.topic for tp in wanted} & there))
    states = {}
    for tp, held in wanted.items():
        if tp not in current:
            states[tp] = "no such partition"
        elif tp in moving:
            states[tp] = "moving"
        else:
            states[tp] = "done" if tuple(held) == current[tp] else "other replicas"
    return states


def _settled(admin: Admin, wanted: ReplicaAssignment) -> dict[TopicPartition, str]:
    """Return `_states`, but wait before reporting differences, since brokers learn of changes with a delay."""
    until = time.monotonic() + BELIEVED_S
    while True:
        states = _states(admin, wanted)
        if set(states.values()) <= {"done", "moving"} or time.monotonic() > until:
            return states
        time.sleep(LOOK_S)


def _wait(admin: Admin, wanted: ReplicaAssignment) -> dict[TopicPartition, str]:
    with progress("moved", len(wanted)) as advance:
        while True:
            states = _settled(admin, wanted)
            left = sum(state == "moving" for state in states.values())
            advance(len(wanted) - left)
            if not left:
                return states
            time.sleep(LOOK_S)


features = typer.Typer(
    help="Show and change the finalized levels of features, which say what all brokers may do.", no_args_is_help=True
)

Levels = Annotated[
    list[str] | None,
    typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="Feature and its new level; may be repeated."),
]
Names = Annotated[list[str], typer.Option("--feature", "-f", metavar="NAME", help="Feature; may be repeated.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check that the change is possible.")]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Also where metadata would be lost.")]


@features.command("describe")
def describe(
    bootstrap: Bootstrap,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="ID", help="Levels that this broker supports; default: any.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the features: the levels that a broker supports, and the finalized level of the cluster."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_features(broker)
    rows = []
    for name in sorted({*found.supported, *found.finalized}):
        levels = found.supported.get(name)
        least, most = (0, 0) if levels is None else (levels.min_version, levels.max_version)
        rows.append((name, least, most, found.level(name)))
    if as_json:
        columns = ("feature", "supported_min_version", "supported_max_version", "finalized_version_level")
        described = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"epoch": found.finalized_epoch, "features": described})
        return
    print_table(
        ("feature", "supported min version", "supported max version", "finalized version level", "epoch"),
        [(*row, found.finalized_epoch) for row in rows],
    )


@features.command("upgrade")
def upgrade(
    bootstrap: Bootstrap,
    levels: Levels = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every feature, to the newest level that all brokers support.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Raise levels of features: all of them, or none.

    After the last broker of a cluster has its new version, `--all` lets the brokers do what that version can. Brokers
    of earlier versions cannot join from then on.
    """
    if everything == bool(levels):
        raise ConfigError("name features with --feature NAME=LEVEL, or take --all")
    wanted = _read_levels(levels or ())
    with open_admin(bootstrap) as admin:
        wanted = _newest(admin) if everything else wanted
        if not wanted:
            typer.echo("every feature is at its newest level")
            return
        admin.update_features(wanted, validate_only=dry_run)
    _say("upgraded", wanted, dry_run=dry_run)


def _newest(admin: Admin) -> dict[str, int]:
    """Return the newest levels that all brokers support, of features that are below them."""
    described = [admin.describe_features(node.node_id) for node in admin.describe_cluster().brokers]
    names = {name for each in described for name in each.supported}
    wanted = {}
    for name in sorted(names):
        most = min(each.supported[name].max_version if name in each.supported else 0 for each in described)
        if most > max(each.level(name) for each in described):
            wanted[name] = most
    return wanted


@features.command("downgrade")
def downgrade(bootstrap: Bootstrap, levels: Levels = None, unsafe: Unsafe = False, dry_run: DryRun = False) -> None:
    """Lower levels of features: all of them, or none."""
    if not levels:
        raise ConfigError("name features with --feature NAME=LEVEL")
    _lower("downgraded", bootstrap, _read_levels(levels), unsafe=unsafe, dry_run=dry_run)


@features.command("disable")
def disable(bootstrap: Bootstrap, names: Names, unsafe: Unsafe = False, dry_run: DryRun = False) -> None:
    """Take features back to the level 0, as if they were never there."""
    _lower("disabled", bootstrap, dict.fromkeys(names, 0), unsafe=unsafe, dry_run=dry_run)


def _lower(verb: str, bootstrap: str, wanted: Mapping[str, int], *, unsafe: bool, dry_run: bool) -> None:
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    with open_admin(bootstrap) as admin:
        admin.update_features(wanted, kind, validate_only=dry_run)
    _say(verb, wanted, dry_run=dry_run)


def _read_levels(levels: Iterable[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for each in levels:
        name, _, level = each.partition("=")
        if not name or not level.isdecimal():
            raise ConfigError(f"--feature {each}: it must be NAME=LEVEL with a level of 0 or more")
        if name in wanted:
            raise ConfigError(f"--feature {each}: {name} is named twice")
        wanted[name] = int(level)
    return wanted


def _say(verb: str, wanted: Mapping[str, int], *, dry_run: bool) -> None:
    did = f"can be {verb}" if dry_run else f"was {verb}"
    lines: Sequence[str] = [
        f"{name} {did}." if verb == "disabled" else f"{name} {did} to {level}." for name, level in wanted.items()
    ]
    typer.echo("\n".join(lines))


cluster = typer.Typer(
    help="Run a cluster on this machine; show the status of a cluster, reassign partitions, elect leaders.",
    invoke_without_command=True,
)


OWN = ("broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "coordination", "metrics.listen")
"""Settings that differ from broker to broker, or that have an option of their own."""
REPLICAS_MAX = 3
LOOK_S = 0.02


def start(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Folder for the data of all brokers: broker-1, ...")
    ],
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", min=1, max=100, help="Number of brokers.")] = 3,
    coordination: Annotated[
        str | None,
        typer.Option(
            "--coordination",
            metavar="URL",
            help="Coordination service: zookeeper://..., etcd://..., etcd+managed://...; default: a new etcd.",
        ),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Listen and advertised host.")] = "127.0.0.1",
    base_port: Annotated[
        int, typer.Option("--base-port", metavar="PORT", min=0, max=65_535, help="Port of broker 1; 0: any free ports.")
    ] = 9092,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration of all brokers, as for serve.")
    ] = None,
    settings: Settings = None,
    restart: Annotated[bool, typer.Option("--restart/--no-restart", help="Restart a broker that dies, or not.")] = True,
    log_level: Annotated[list[str] | None, typer.Option(metavar="LEVEL", help="As for serve; may be repeated.")] = None,
    log_format: Annotated[str, typer.Option(metavar="FORM", help="text or json.")] = "text",
    secure: Annotated[
        bool,
        typer.Option("--secure", help="TLS, a user admin (SCRAM) and ACLs; certificates and password in DIR/security."),
    ] = False,
) -> None:
    """Run a cluster on this machine in the foreground, until Ctrl-C or SIGTERM.

    Prints "barnabas cluster ready HOST:PORT,HOST:PORT,..." on standard output once all brokers accept connections and
    know each other. All logs go to standard error, each line with the name of its broker. A broker that dies is
    restarted, after half a second at first. At the end brokers stop one after the other, then the etcd; a second signal
    stops all at once.

    With etcd+managed://HOST:PORT,HOST:PORT,... and a server for each broker, each broker runs one of them.

    Topics have 3 replicas (or as many as there are brokers) and min.insync.replicas=2 unless --set says otherwise.
    """
    from ...signals import ending_in_order

    with ending_in_order():
        from ...compose.broker import plugin_host
        from ...compose.coordination import cluster_coordination, starts_etcd
        from ...config import read_config
        from ...config.coordination_keys import coordination_settings
        from ..logging_setup import set_up
        from ..processes import Lines, ManagedProcess, NamedLines, Processes

        given = parse_settings(settings)
        owned = sorted(set(given) & set(OWN))
        if owned:
            raise ConfigError(f"--set {owned[0]}: it differs between the brokers, or has an option of its own")
        read = read_config(config, {**given, **({"coordination": coordination} if coordination else {})})
        names = [f"broker-{number}" for number in range(1, brokers + 1)]
        lines = Lines(sys.stderr, ["cluster", *names], log_format)
        set_up(log_level or read.logging_level, log_format, cast("TextIO", NamedLines(lines, "cluster")))
        chosen = coordination or (read.coordination if "coordination" in read.given else None)
        with ExitStack() as keep:
            ports = _ports(host, base_port, brokers, keep)
            files = _secure_folder(data / "security", host, given) if secure else None
            of_etcd = files.etcd_settings() if files is not None and starts_etcd(chosen) else {}
            security = {**coordination_settings(read), **of_etcd}
            urls = keep.enter_context(cluster_coordination(chosen, brokers, data / "etcd", plugin_host(read), security))
            words = [
                *(["--config", str(config)] if config else []),
                *(word for level in log_level or () for word in ("--log-level", level)),
                *("--log-format", log_format),
            ]
            if files is not None:
                words += ["--secure", "--security-dir", str(files.folder)]
            members = []
            for number, (name, port, url) in enumerate(zip(names, ports, urls, strict=True), start=1):
                own = {**_defaults(brokers, read), **of_etcd, **given, "broker.id": number, "coordination": url}
                options = ["--data", str(data / name), "--listen", f"kafka://{host}:{port}"]
                members.append(ManagedProcess(name, ["serve", *options, *words, *_set(own)]))
            addresses = [f"{host}:{port}" for port in ports]
            announce = Thread(target=_announce, args=(addresses, files), name="announce", daemon=True)
            Processes(members, lines, restart=restart, ready=announce.start).run()


def _secure_folder(folder: Path, host: str, given: Mapping[str, object]) -> SecureFolder:
    """Return the files of `--secure`, made before the brokers start, which share them. Raises `ConfigError`."""
    from ...secure_start import SecureFolder

    files = SecureFolder(folder, [host])
    files.broker_settings(tuple(given))
    return files


def _announce(addresses: Sequence[str], files: SecureFolder | None) -> None:
    """Wait until each broker has also seen all others, so that topics can be created with all replicas; then report."""
    if files is not None:
        use_command_config(files.client_file)
    for address in addresses:
        with open_admin(address) as admin:
            while not _sees(admin, len(addresses)):
                sleep(LOOK_S)
    if files is not None:
        sys.stderr.write(files.how_to_connect(",".join(addresses)))
    sys.stdout.write(f"barnabas cluster ready {','.join(addresses)}\n")
    sys.stdout.flush()


def _sees(admin: Admin, count: int) -> bool:
    try:
        return len(admin.describe_cluster().brokers) >= count
    except BarnabasError:
        return False  # it has died, and is restarted


def _defaults(brokers: int, read: BrokerConfig) -> dict[str, object]:
    """Return the defaults for a cluster, which differ from those of a single broker, for settings not given."""
    replicas = min(REPLICAS_MAX, brokers)
    better = {"default.replication.factor": replicas, "min.insync.replicas": max(1, replicas - 1)}
    return {key: value for key, value in better.items() if key not in read.given}


def _set(settings: Mapping[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def _ports(host: str, base: int, count: int, keep: ExitStack) -> Sequence[int]:
    """Reserve a port for each broker, also for its restarts, until `keep` is closed. Raises `ConfigError`."""
    if base:
        if base + count - 1 > 65_535:
            raise ConfigError(f"--base-port {base}: there are less than {count} ports from there on")
        return range(base, base + count)
    from ...reserve_port import reserve_port

    return [reserve_port(host, keep) for _ in range(count)]


cluster.command("start")(start)


def overview(
    bootstrap: Bootstrap,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this one; may be repeated.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the brokers, and every partition of every topic with its leader and replicas, like `kcat -L`."""
    with open_admin(bootstrap) as admin:
        found = _ask(admin, topic, internal=internal)
    if as_json:
        print_json(found)
        return
    brokers, topics = found["brokers"], found["topics"]
    head = f"cluster {found['cluster_id']}, {counted(len(brokers), 'broker')}, {counted(len(topics), 'topic')}"
    sections = [
        Section(
            head,
            ("broker", "address", "rack", "controller"),
            [(b["id"], b["address"], b["rack"] or "-", "yes" if b["controller"] else "-") for b in brokers],
        )
    ]
    for each in topics:
        rows = [
            (
                p["partition"],
                "-" if p["leader"] == NO_NODE else p["leader"],
                list_text(p["replicas"]),
                list_text(p["isr"]),
                p["error"] or "",
            )
            for p in each["partitions"]
        ]
        wrong = any(p["leader"] == NO_NODE or len(p["isr"]) < len(p["replicas"]) for p in each["partitions"])
        title = f"{each['topic']}, {counted(len(rows), 'partition')}"
        sections.append(Section(title, ("partition", "leader", "replicas", "isr", "error"), rows, alarm=wrong))
    show(sections)


def _ask(admin: Admin, names: list[str] | None, *, internal: bool) -> dict[str, Any]:
    cluster = admin.describe_cluster()
    topics = admin.describe_topics(names) if names else admin.describe_topics()
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [
            {
                "id": node.node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "controller": node.node_id == cluster.controller_id,
            }
            for node in sorted(cluster.brokers, key=lambda node: node.node_id)
        ],
        "topics": [
            {
                "topic": topic.name,
                "internal": topic.internal,
                "partitions": [
                    {
                        "partition": each.partition,
                        "leader": each.leader,
                        "replicas": list(each.replicas),
                        "isr": list(each.isr),
                        "error": None if each.error is ErrorCode.NONE else each.error.name,
                    }
                    for each in sorted(topic.partitions, key=lambda each: each.partition)
                ],
            }
            for topic in sorted(topics, key=lambda topic: topic.name or "")
            if names or internal or not topic.internal
        ],
    }


cluster.command("overview")(overview)
cluster.add_typer(reassign, name="reassign")
cluster.add_typer(features, name="features")

SHOWN_MAX = 50
"""Maximum number of partitions in each table for a person; `--json` has all."""


def register(app: typer.Typer) -> None:
    app.add_typer(cluster, name="cluster")


@cluster.callback()
def overview_of(
    context: typer.Context,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "-b", metavar="HOST:PORT", help="A broker, for the overview.", envvar=BOOTSTRAP_VARIABLE
        ),
    ] = None,
) -> None:
    """Show the overview if no command is given."""
    if context.invoked_subcommand is not None:
        return
    if bootstrap is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
    overview(bootstrap)


@cluster.command("status")
def status(
    bootstrap: Bootstrap,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat the status until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Interval of --watch.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show the brokers, the controller, and the partitions without a leader or with a replica out of sync.

    Ends with 0 when every partition has a leader and all its replicas in sync and every broker answers, else with 1.
    """
    with open_admin(bootstrap) as admin:
        if watch:
            _watch(admin, interval, as_json)
            return
        found = ask_status(admin)
    if as_json:
        print_json(to_fields(found))
    else:
        show(sections_of(found))
    if not found.healthy:
        raise typer.Exit(1)


def _watch(admin: Admin, interval: float, as_json: bool) -> None:
    """Repeat the status until Ctrl-C, even while the cluster does not answer."""
    if as_json:
        _repeat(interval, lambda: typer.echo(json.dumps(to_fields(ask_status(admin)), ensure_ascii=False)))
        return
    if not sys.stdout.isatty():
        _repeat(interval, lambda: show(sections_of(ask_status(admin))))
        return
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:

        def update_screen() -> None:
            try:
                sections = sections_of(ask_status(admin))
            except BarnabasError as error:
                sections = [Section(str(error), alarm=True)]
            live.update(framed([Section(strftime("%H:%M:%S")), *sections]), refresh=True)

        _repeat(interval, update_screen)


def _repeat(interval: float, update_screen: Callable[[], None]) -> None:
    try:
        while True:
            try:
                update_screen()
            except BarnabasError as error:
                typer.echo(f"barnabas: {error}", err=True)
            sleep(interval)
    except KeyboardInterrupt:
        return


def sections_of(found: ClusterStatus) -> list[Section]:
    """Return the tables for a person."""
    controller = "no controller" if found.controller == NO_NODE else f"controller {found.controller}"
    held = f"{counted(found.topics, 'topic')}, {counted(found.partitions, 'partition')}"
    head = f"cluster {found.cluster_id}, {controller}, {held}"
    columns = ("broker", "address", "rack", "leaders", "replicas", "in_sync", "size", "lag", "state")
    rows = [
        (
            broker.id,
            broker.address or "-",
            broker.rack or "-",
            broker.leaders,
            broker.replicas,
            broker.in_sync,
            size_text(broker.bytes),
            "-" if broker.lag is None else broker.lag,
            broker.state,
        )
        for broker in found.brokers
    ]
    return [
        Section(head, columns, rows, alarm=found.controller == NO_NODE),
        _trouble("offline partition", found.offline, found.internal),
        _trouble("under-replicated partition", found.under_replicated, found.internal),
        *_moves(found),
    ]


def _trouble(what: str, partitions: Sequence[PartitionStatus], internal: Mapping[str, int]) -> Section:
    """Return a row for each partition of users' topics, and one for each internal topic."""
    if not partitions:
        return Section(f"no {what}s")
    own = [p for p in partitions if p.topic not in internal]
    more = "" if len(own) <= SHOWN_MAX else f", the first {SHOWN_MAX} of users' topics"
    rows: list[Sequence[object]] = [
        (
            p.topic,
            p.partition,
            "-" if p.leader == NO_NODE else p.leader,
            list_text(p.replicas),
            list_text(p.isr),
            list_text([f"{broker}:{lag}" for broker, lag in p.lags.items() if lag]),
        )
        for p in own[:SHOWN_MAX]
    ]
    rows += _internal_rows([p.topic for p in partitions], internal, columns=6)
    columns = ("topic", "partition", "leader", "replicas", "isr", "lag")
    return Section(f"{counted(len(partitions), what)}{more}", columns, rows, alarm=True)


def _moves(found: ClusterStatus) -> list[Section]:
    if not found.reassignments:
        return []
    own = [move for move in found.reassignments if move.topic not in found.internal]
    rows: list[Sequence[object]] = [
        (move.topic, move.partition, list_text(move.replicas), list_text(move.adding), list_text(move.removing))
        for move in own[:SHOWN_MAX]
    ]
    rows += _internal_rows([move.topic for move in found.reassignments], found.internal, columns=5)
    columns = ("topic", "partition", "replicas", "adding", "removing")
    return [Section(f"{counted(len(found.reassignments), 'partition')} on the move", columns, rows)]


def _internal_rows(topics: Iterable[str], internal: Mapping[str, int], *, columns: int) -> list[Sequence[object]]:
    """Return one row per internal topic with its number of partitions, like `__consumer_offsets  50 of 50`."""
    found = Counter(topic for topic in topics if topic in internal)
    return [(name, f"{found[name]} of {internal[name]}", *["-"] * (columns - 2)) for name in sorted(found)]


def to_fields(found: ClusterStatus) -> dict[str, Any]:
    """Return the JSON object for a program."""
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "healthy": found.healthy,
        "topics": found.topics,
        "partitions": found.partitions,
        "brokers": [
            {
                "id": broker.id,
                "address": broker.address,
                "rack": broker.rack,
                "controller": broker.controller,
                "leaders": broker.leaders,
                "replicas": broker.replicas,
                "in_sync": broker.in_sync,
                "bytes": broker.bytes,
                "lag": broker.lag,
                "problem": broker.problem,
                "cordoned": broker.cordoned,
            }
            for broker in found.brokers
        ],
        "offline": [_partition_fields(partition) for partition in found.offline],
        "under_replicated": [_partition_fields(partition) for partition in found.under_replicated],
        "reassignments": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "replicas": list(move.replicas),
                "adding": list(move.adding),
                "removing": list(move.removing),
            }
            for move in found.reassignments
        ],
    }


def _partition_fields(partition: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "lag": {str(broker): lag for broker, lag in partition.lags.items()},
    }


@cluster.command("elect")
def elect(
    bootstrap: Bootstrap,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic; may be repeated.")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", metavar="NUMBER", help="Partition; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions that need an election.")] = False,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Elect any live replica for partitions without a leader; messages may be lost."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Elect the preferred leaders of partitions (or, with --unclean, any live replica)."""
    from ....ports.broker_api.replicas import ElectionType

    if everything == bool(topics):
        raise ConfigError("select partitions with --all, or --topic TOPIC")
    if partitions and (topics is None or len(topics) != 1):
        raise ConfigError("--partition needs exactly one --topic")
    with open_admin(bootstrap) as admin:
        topic_partitions = None if everything else _partitions(admin, topics or (), partitions)
        elected = admin.elect_leaders(topic_partitions, ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED)
    if as_json:
        print_json([{"topic": tp.topic, "partition": tp.partition} for tp in sorted(elected)])
        return
    for tp in sorted(elected):
        typer.echo(f"{tp} has a new leader")
    if not elected:
        typer.echo("no partition needed another leader")


def _partitions(admin: Admin, topics: Sequence[str], partitions: Sequence[int] | None) -> list[TopicPartition]:
    if partitions:
        return [TopicPartition(topics[0], number) for number in partitions]
    found = admin.describe_topics(topics)
    return [TopicPartition(str(topic.name), each.partition) for topic in found for each in topic.partitions]
