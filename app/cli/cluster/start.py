"""`barnabas cluster start`: several brokers on this machine, each in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ....ports.errors import BarnabasError, ConfigError
from ..command_config import use_command_config
from ..options import Settings, open_admin, parse_settings

if TYPE_CHECKING:
    from typing import TextIO

    from ...clients.admin.admin import Admin
    from ...config import BrokerConfig
    from ...secure_start import SecureFolder

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
        from ...compose.coordination import cluster_coordination
        from ...config import read_config
        from ..logging_setup import set_up
        from .processes import Lines, ManagedProcess, NamedLines, Processes

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
            urls = keep.enter_context(cluster_coordination(chosen, brokers, data / "etcd", plugin_host(read)))
            words = [
                *(["--config", str(config)] if config else []),
                *(word for level in log_level or () for word in ("--log-level", level)),
                *("--log-format", log_format),
            ]
            files = _secure_folder(data / "security", host, given) if secure else None
            if files is not None:
                words += ["--secure", "--security-dir", str(files.folder)]
            members = []
            for number, (name, port, url) in enumerate(zip(names, ports, urls, strict=True), start=1):
                own = {**_defaults(brokers, read), **given, "broker.id": number, "coordination": url}
                place = ["--data", str(data / name), "--listen", f"kafka://{host}:{port}"]
                members.append(ManagedProcess(name, ["serve", *place, *words, *_set(own)]))
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
                time.sleep(LOOK_S)
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
