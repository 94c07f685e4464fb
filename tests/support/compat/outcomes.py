"""The results of a run, a file per cell, so that parallel processes do not disturb each other."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import attrs

FOLDER = Path(__file__).resolve().parents[3] / ".build" / "compatibility"


@attrs.frozen(kw_only=True)
class Found:
    """One cell. state: "yes", "no" or "skipped"; run: which test run found it."""

    client: str
    feature: str
    state: str
    reason: str = ""
    version: str = ""
    run: str = ""


def this_run() -> str:
    """Names the run of the tests, in all its processes."""
    return os.environ.get("BARNABAS_TEST_RUN", f"process {os.getpid()}")


def write(found: Found) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{found.client}.{found.feature}.json"
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(attrs.asdict(found), indent=1) + "\n", encoding="utf-8")
    partial.replace(file)


def read() -> Iterable[Found]:
    """Return all results, of this run or earlier ones."""
    for file in sorted(FOLDER.glob("*.json")):
        yield Found(**json.loads(file.read_text(encoding="utf-8")))
