"""franz-go, in a process that is built here."""

import os
import shutil
from pathlib import Path

from .fetched import BUILD, fetched, need, run
from .remote import DriverProcess, RemoteClient

_HERE = Path(__file__).parent / "franzgo"
_SOURCES = ("go.mod", "go.sum", "main.go")


def _build(folder: Path) -> None:
    for name in _SOURCES:
        shutil.copy(_HERE / name, folder)
    run(["go", "build", "-o", "driver", "."], folder, "franz-go could not be fetched and built")


def franz_go(bootstrap: str) -> RemoteClient:
    """Raises `Unavailable`."""
    need("go")
    folder = fetched("franz-go", "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SOURCES), _build)
    log = BUILD / "franz-go" / f"{os.getpid()}.log"
    return RemoteClient(DriverProcess([folder / "driver"], log, os.environ), bootstrap)
