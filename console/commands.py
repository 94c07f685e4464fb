"""`barnabas console`: serve the web console."""

from pathlib import Path
from typing import Annotated

import typer

from ..app.cli.command_config import connection_settings, registry_settings
from ..app.cli.logging_setup import set_up
from ..app.cli.options import Bootstrap
from ..ports.errors import ConfigError
from .listening import logger, parse_listen, warn_of_strangers


def register_console(app: typer.Typer) -> None:
    app.command("console")(console)


def console(
    bootstrap: Bootstrap = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve; port 0: any free one.")
    ] = "127.0.0.1:8082",
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate and its chain, as PEM."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The private key of --tls-cert, as PEM.")
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name under which browsers may reach it; may be repeated."),
    ] = None,
    registry: Annotated[
        str, typer.Option("--registry", metavar="URL", help="A schema registry, such as http://127.0.0.1:8081.")
    ] = "",
    warehouse: Annotated[
        str, typer.Option("--warehouse", metavar="DIR", help="The folder of a loaded table, or of several.")
    ] = "",
    remote_storage: Annotated[
        str,
        typer.Option("--remote-storage", metavar="URL", help="The remote storage of the brokers, such as s3://BUCKET."),
    ] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
    log_level: Annotated[
        list[str] | None, typer.Option(metavar="LEVEL", help="As of barnabas serve; repeatable.")
    ] = None,
    log_format: Annotated[str, typer.Option(metavar="FORM", help="text or json.")] = "text",
) -> None:
    """Serve a web console for a cluster of Barnabas or Apache Kafka, until Ctrl-C or SIGTERM.

    Prints "barnabas console ready http://HOST:PORT" (https:// with --tls-cert) on standard output.
    """
    from ..app.signals import ending_in_order

    with ending_in_order():
        set_up(log_level or [], log_format)
        if not bootstrap:
            raise ConfigError("--bootstrap HOST:PORT is missing: give a broker of the cluster")
        address = parse_listen(listen, "--listen")
        if (tls_cert is None) != (tls_key is None) or (listen.startswith("https://") and tls_cert is None):
            raise ConfigError("HTTPS needs both --tls-cert FILE and --tls-key FILE")
        tls = None
        if tls_cert is not None and tls_key is not None:
            from ..app.compose.https import certificate_context

            tls = certificate_context(tls_cert, tls_key, logger.warning)
        from ..app.compose.http_server import serve_until_signal
        from .application import ConsoleSettings
        from .server import ConsoleServer

        settings = ConsoleSettings(
            cluster={**connection_settings(), "bootstrap.servers": bootstrap},
            read_only=read_only,
            host_names=host_name or (),
            registry=registry,
            warehouse=warehouse,
            remote_storage=remote_storage,
            registry_settings=registry_settings(),
        )
        warn_of_strangers(address[0], settings, has_tls=tls is not None)
        serve_until_signal(ConsoleServer(settings, address, tls), "console")
