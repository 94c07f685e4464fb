"""`barnabas registry`: serve schemas over HTTP."""

import signal
import sys
from threading import Event
from typing import Annotated

import typer

from ...app.cli.command_config import secured_by_command_config
from ...app.cli.logging_setup import set_up
from ...app.cli.options import Bootstrap
from ...ports.errors import BarnabasError, ConfigError
from .listening import parse_listen

_LOOK_S = 1.0


def register_registry(app: typer.Typer) -> None:
    app.command("registry")(registry)


def registry(
    bootstrap: Bootstrap = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve HTTP; port 0: any free one.")
    ] = "127.0.0.1:8081",
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="The topic that stores the schemas.")] = "_schemas",
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
        if not bootstrap:
            raise ConfigError("--bootstrap HOST:PORT is missing: give a broker of the cluster")
        address = parse_listen(listen, "--listen")
        from .server import RegistryServer

        set_up(log_level or [], log_format)
        stopping = Event()
        cluster = secured_by_command_config(bootstrap)
        server = RegistryServer(cluster, address, topic=topic, validate_defaults=avro_validate_defaults)
        try:
            url = server.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stopping.set())
            sys.stdout.write(f"barnabas registry ready {url}\n")
            sys.stdout.flush()
            while not stopping.wait(_LOOK_S):
                if server.wait(0):
                    raise BarnabasError("the registry has stopped after an error; see the log above")
        finally:
            server.stop()
