"""A worker of `barnabas serve --workers`, as a child process: its settings are the first line of its standard input."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from ...ports.errors import BarnabasError, ConfigError
from ..signals import end_with_parent, ending_in_order


def run() -> None:
    """Run the worker that the parent describes, until SIGTERM or the end of the parent."""
    described = json.loads(_first_line())
    end_with_parent()
    with ending_in_order():
        _serve(described)


def _serve(described: dict[str, Any]) -> None:
    from ..compose.broker import WorkerPart
    from ..compose.serve import serve
    from ..compose.worker_control import WorkerControl
    from ..config import read_config
    from .logging_setup import set_up

    file = described["config"]
    read = read_config(None if file is None else Path(file), described["settings"])
    set_up(read.logging_level, read.logging_format)
    part = WorkerPart(
        {int(index): socket.socket(fileno=number) for index, number in described["shared"].items()},
        WorkerControl(socket.socket(fileno=described["control"])),
        shows_metrics=described["metrics"],
    )
    serve(read, ready=_announce, worker=part)


def _announce(listeners: list[str]) -> None:
    sys.stdout.write(f"barnabas ready {' '.join(listeners)}\n")
    sys.stdout.flush()


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (read := os.read(0, 65_536)):
        line += read
    return line


if __name__ == "__main__":
    try:
        run()
    except BarnabasError as error:
        sys.stderr.write(f"barnabas: {error}\n")
        sys.exit(2 if isinstance(error, ConfigError) else 1)
