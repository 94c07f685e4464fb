"""kafkajs, in a process of node."""

import os
import shutil
from pathlib import Path

from .fetched import BUILD, fetched, need, run
from .remote import DriverProcess, RemoteClient

_HERE = Path(__file__).parent / "kafkajs"


def _fetch(folder: Path) -> None:
    shutil.copy(_HERE / "package.json", folder)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", "--fetch-timeout=20000"]
    retries = ["--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=1000"]
    run(["npm", "install", *options, *retries], folder, "kafkajs could not be fetched")


def kafkajs(bootstrap: str) -> RemoteClient:
    """Raises `Unavailable`."""
    need("node", "npm")
    folder = fetched("kafkajs", (_HERE / "package.json").read_text(encoding="utf-8"), _fetch)
    environment = {
        **os.environ,
        "NODE_PATH": str(folder / "node_modules"),
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        "NODE_NO_WARNINGS": "1",
    }
    command = ["node", str(_HERE / "driver.js")]
    return RemoteClient(DriverProcess(command, BUILD / "kafkajs" / f"{os.getpid()}.log", environment), bootstrap)
