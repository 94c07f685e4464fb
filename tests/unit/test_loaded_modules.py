"""The modules that a process loads: they take most of the time and memory of a start."""

import subprocess
import sys

import pytest

OF_OTHERS = {"_ssl", "argparse", "asyncio", "email", "grpc", "hashlib", "hmac", "importlib.metadata", "kazoo", "rich"}
"""Modules that clients and brokers without security do not need, and which are slow or large."""
CLIENTS = "from barnabas import Producer, Consumer, Admin"
HELP = """
import sys
from barnabas.app.cli.main import main
try:
    main([{words}])
except SystemExit:
    pass
"""
BROKER = """
import os, signal, threading
from barnabas.app.cli.main import main
from barnabas.app.cli import serve
serve._announce = lambda urls: os.kill(os.getpid(), signal.SIGTERM)
main(["serve", "--data", {folder!r}, "--listen", "kafka://127.0.0.1:0", "--log-level", "error"])
"""


def loaded_by(code: str) -> set[str]:
    """Return the modules that a new process has loaded after this code."""
    code += "\nimport sys\nprint('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.partition("LOADED ")[2].split())


def of_packages(loaded: set[str], *packages: str) -> list[str]:
    return sorted(name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in packages))


def test_package_loads_nothing_of_itself() -> None:
    assert of_packages(loaded_by("import barnabas"), "barnabas", "attr", "typer") == ["barnabas"]


def test_clients_load_no_broker_and_no_hashes() -> None:
    loaded = loaded_by(CLIENTS)
    unwanted = ("typer", "sqlite3", "barnabas.app.broker", "barnabas.app.cli", "barnabas.core.coordinator")
    assert of_packages(loaded, *OF_OTHERS - {"_ssl"}, *unwanted) == []  # the types of their settings name SSLContext


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("'--help'", set()),
        ("'topcs'", set()),
        ("'topics', '--help'", {"topics", "topics.command", "classic", "configs", "tables", "tier", "times"}),
        ("'serve', '--help'", {"serve"}),
    ],
)
def test_help_loads_the_module_of_its_command_only(words: str, own: set[str]) -> None:
    loaded = loaded_by(HELP.format(words=words))
    assert of_packages(loaded, "barnabas.app.clients", "barnabas.app.config", "barnabas.pipeline") == []
    assert of_packages(loaded, "rich", "asyncio", "_ssl", "importlib.metadata") == []
    shared = {"main", "options", "command_config", "client_files", "profiles"}
    commands = {name.removeprefix("barnabas.app.cli.") for name in of_packages(loaded, "barnabas.app.cli")}
    assert commands - shared - {"barnabas.app.cli"} <= own


def test_broker_without_security_loads_none_of_it(tmp_path: object) -> None:
    code = f"import sys\ntry:\n    exec({BROKER.format(folder=str(tmp_path))!r})\nexcept SystemExit:\n    pass"
    loaded = loaded_by(code)
    assert "barnabas.app.broker.lifecycle.broker_server" in loaded
    unwanted = (
        "prometheus_client",
        "typer",
        "barnabas.schemas.access",
        "barnabas.adapters.transport_tls",
        "barnabas.pipeline",
        # Classic topics, remote storage and clusters of several brokers have their part loaded when there is one.
        "barnabas.core.message.classic",
        "barnabas.core.tiering.remote_log_manager",
        "barnabas.app.broker.lifecycle.cluster_member",
        # The schemas of requests come with the first connection, what requests touch with an authorizer.
        "barnabas.adapters.wire_kafka",
        "barnabas.app.broker.handlers.authorization",
        "isal",
        "encodings.idna",
        "random",
        "shutil",
    )
    assert of_packages(loaded, *OF_OTHERS, *unwanted) == []


def test_test_broker_loads_neither_clients_nor_wire_formats_before_it_is_asked_for_them() -> None:
    loaded = loaded_by(
        "from barnabas.testing import TestBroker\nwith TestBroker() as broker:\n    broker.create_topic()"
    )
    clients = ("producer", "consumer", "share", "admin")
    unwanted = (
        *(f"barnabas.app.clients.{client}" for client in clients),
        "barnabas.app.clients.shared.connect",
        "barnabas.app.config.security_settings",
        "barnabas.adapters.wire_kafka",
        "barnabas.adapters.storage_fs",
    )
    assert of_packages(loaded, *unwanted) == []
