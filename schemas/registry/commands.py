"""`barnabas registry`: serve schemas over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from ...app.cli.client_files import read_client_file
from ...app.cli.command_config import secured_by_command_config
from ...app.cli.logging_setup import set_up
from ...app.cli.options import Bootstrap
from ...app.clients.shared.connect import secured
from ...ports.errors import ConfigError
from .listening import STORE, parse_listen, security_of, warn_of_passwords


def register_registry(app: typer.Typer) -> None:
    app.command("registry")(registry)


def registry(
    bootstrap: Bootstrap = "",
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to serve HTTP, or https://HOST:PORT; port 0: any free one. By default 127.0.0.1:8081.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic that stores the schemas; by default _schemas.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings by the names of Confluent's registry: listeners, ssl.*, authentication.*."
        ),
    ] = None,
    avro_validate_defaults: Annotated[
        bool, typer.Option("--avro-validate-defaults", help="Refuse Avro defaults that are not of their field's type.")
    ] = False,
    log_level: Annotated[
        list[str] | None, typer.Option(metavar="LEVEL", help="As of barnabas serve; repeatable.")
    ] = None,
    log_format: Annotated[str, typer.Option(metavar="FORM", help="text or json.")] = "text",
) -> None:
    """Serve schemas by the Confluent REST API from a compacted topic, until Ctrl-C or SIGTERM.

    Prints "barnabas registry ready http://HOST:PORT" on standard output. Several registries may serve the same topic.
    """
    from ...app.signals import ending_in_order

    with ending_in_order():
        set_up(log_level or [], log_format)
        settings = {} if config is None else {key: str(value) for key, value in read_client_file(config).items()}
        bootstrap = bootstrap or settings.get(f"{STORE}bootstrap.servers", "")
        if not bootstrap:
            raise ConfigError("--bootstrap HOST:PORT is missing: give a broker of the cluster")
        listen = listen or settings.get("listeners", "127.0.0.1:8081")
        address = parse_listen(listen, "--listen" if "listeners" not in settings else "listeners")
        from ...app.compose.http_server import serve_until_signal
        from .server import RegistryServer

        own = {key.removeprefix(STORE): value for key, value in settings.items() if key.startswith(STORE)}
        cluster = secured_by_command_config(bootstrap)
        if cluster is bootstrap:
            cluster = secured(_without_protocols(bootstrap), own)
        security = security_of(settings, listen)
        warn_of_passwords(address[0], security)
        server = RegistryServer(
            cluster,
            address,
            topic=topic or own.get("topic", "_schemas"),
            validate_defaults=avro_validate_defaults or settings.get("avro.validate.defaults", "").lower() == "true",
            security=security,
        )
        serve_until_signal(server, "registry")


def _without_protocols(bootstrap: str) -> str:
    """Return HOST:PORT,... of addresses that Confluent's registry takes with a security protocol before each."""
    return ",".join(each.strip().rpartition("://")[2] for each in bootstrap.split(","))
