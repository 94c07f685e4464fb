"""`barnabas serve`: run a broker."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ...ports.errors import ConfigError
from .client_files import parse_settings

if TYPE_CHECKING:
    import typer

    from .options import Settings

_CONSOLE_LISTEN = "127.0.0.1:8082"


def register(app: typer.Typer) -> None:
    import typer

    from .options import Settings

    # The names in the annotations of `serve`, which typer evaluates; without typer a start of a broker is quicker.
    globals().update(typer=typer, Settings=Settings)
    app.command("serve")(serve)


def serve(
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Folder of the logs.")] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Listener kafka://HOST:PORT (port 0: any free one); may be repeated."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML, or server.properties.")] = None,
    settings: Settings = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=100,
            help="Run N brokers that share the machine, the listeners and the configuration; one per core.",
        ),
    ] = None,
    log_level: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL",
            help="debug, info (default), warning, error; LOGGER=LEVEL for one logger; may be repeated.",
        ),
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="FORM", help="Format of the log on standard error: text or json.")
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="TLS, a user admin (SCRAM) and ACLs; certificates and password in --security-dir."
        ),
    ] = False,
    console: Annotated[
        bool,
        typer.Option("--console", help="A web console in its process, at console.listen or http://127.0.0.1:8082."),
    ] = False,
    security_dir: Annotated[
        Path | None,
        typer.Option("--security-dir", metavar="DIR", help="Folder of --secure; default: DATA-security."),
    ] = None,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Prints "barnabas ready URL..." on standard output once it accepts connections.

    With --workers N, N brokers in processes of their own: clients bootstrap at the listener, worker k listens at the
    k-th port after it, and its data are in DIR/worker-k. One that dies is restarted. Each line of the log has the name
    of its worker. Without a coordination service an etcd is started, with its data in DIR/etcd.
    """
    gc.set_threshold(3000, 1_000_000)  # a start makes many objects that stay; `compose.serve` collects once at its end
    from ..signals import ending_in_order

    with ending_in_order():
        if secure and security_dir is None:
            if data is None:
                raise ConfigError("--secure needs --data or --security-dir, the folder for its files")
            security_dir = data.with_name(f"{data.name}-security")
        given: dict[str, object] = {**parse_settings(settings)}
        if workers is not None:
            given["workers"] = workers
        if console:
            given.setdefault("console.listen", _CONSOLE_LISTEN)
        _serve(data, listen, config, given, log_level, log_format, security_dir if secure else None)


def _serve(
    data: Path | None,
    listen: list[str] | None,
    config: Path | None,
    given: dict[str, object],
    log_level: list[str] | None,
    log_format: str | None,
    security_dir: Path | None,
) -> None:
    from ..config import read_config

    announce: Callable[[list[str]], None] = _announce
    if security_dir is not None:
        listen, announce = _secure(security_dir, listen or ["SASL_SSL://127.0.0.1:9092"], given)
    if data is not None:
        given["log.dirs"] = str(data)
    if listen:
        given["listeners"] = ",".join(listen)
    if log_level:
        given["logging.level"] = ",".join(log_level)
    if log_format is not None:
        given["logging.format"] = log_format
    read = read_config(config, given)
    if read.workers > 1:
        if security_dir is not None and not {"coordination", "etcd.cert"} & read.given:
            given.update(_etcd_settings(security_dir))
            read = read_config(config, given)
        from .workers import run_workers

        run_workers(config, given, read, announce)
        return
    from ..compose.serve import serve as run
    from .logging_setup import set_up

    set_up(read.logging_level, read.logging_format)
    run(read, ready=announce)


def _etcd_settings(security_dir: Path) -> dict[str, str]:
    from ..secure_start import SecureFolder

    return SecureFolder(security_dir).etcd_settings()


def _secure(folder: Path, listen: list[str], given: dict[str, object]) -> tuple[list[str], Callable[[list[str]], None]]:
    """Add the settings of `--secure`; return the listeners and what announces that they are open."""
    from ..compose.coordination import starts_etcd
    from ..config import parse_listener
    from ..config.listeners import KAFKA
    from ..secure_start import SecureFolder

    parsed = [parse_listener(text) for text in listen]
    if any(each.protocol != KAFKA for each in parsed):
        raise ConfigError("--secure: listeners must be kafka://HOST:PORT; the classic protocol has no users")
    files = SecureFolder(folder, [each.host for each in parsed])
    given.update(files.broker_settings(tuple(given)))
    if "coordination" in given and starts_etcd(str(given["coordination"])) and "etcd.cert" not in given:
        given.update(files.etcd_settings())

    def announce(listeners: list[str]) -> None:
        sys.stderr.write(files.how_to_connect(listeners[0].partition("://")[2]))
        _announce(listeners)

    return [f"SASL_SSL://{each.address_text}" for each in parsed], announce


def _announce(listeners: list[str]) -> None:
    sys.stdout.write(f"barnabas ready {' '.join(listeners)}\n")
    sys.stdout.flush()
    _notify_systemd()


def _notify_systemd() -> None:
    """Report the broker as ready to a service manager that waits for it (`Type=notify`, sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a socket without a file
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(b"READY=1", address)
    except OSError as error:
        sys.stderr.write(f"barnabas: systemd cannot be notified ({address!r}): {error}\n")
