"""Packages from registries of other languages, fetched once into the build folder."""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from support.maven import NoJars, maven_jars

from . import outcomes
from .model import Unavailable

BUILD = Path(__file__).resolve().parents[3] / ".build"
LIMIT_S = 120


def need(*commands: str) -> None:
    """Raises `Unavailable` unless all of these are installed."""
    for command in commands:
        if shutil.which(command) is None:
            raise Unavailable(f"{command} is not on this machine")


def fetched(name: str, recipe: str, fetch: Callable[[Path], None]) -> Path:
    """Return the folder that `fetch` has filled by `recipe`; another recipe has another folder.

    Several processes may ask at once. Raises `Unavailable` when it cannot be filled; that is tried once a run.
    """
    folder = BUILD / name / hashlib.sha256(recipe.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    done, failed = folder / ".complete", folder / ".failed"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return folder
        if failed.exists() and failed.read_text(encoding="utf-8").startswith(outcomes.this_run()):
            raise Unavailable(failed.read_text(encoding="utf-8").partition("\n")[2])
        try:
            fetch(folder)
        except Unavailable as error:
            failed.write_text(f"{outcomes.this_run()}\n{error}", encoding="utf-8")
            raise
        done.touch()
    return folder


def jars(name: str, libraries: Sequence[str], *, with_what_they_need: bool = False) -> Path:
    """Return the folder with these libraries only, each "group:artifact:version", or also with their dependencies
    (`with_what_they_need`). Raises `Unavailable`."""
    without = () if with_what_they_need else ("*:*",)

    def fetch(folder: Path) -> None:
        try:
            maven_jars(folder / "jars", libraries, without=without, timeout_s=LIMIT_S)
        except NoJars as error:
            raise Unavailable(str(error)) from error

    return fetched(name, "\n".join(libraries), fetch) / "jars"


def run(command: Sequence[str | Path], folder: Path, what: str) -> None:
    """Raises `Unavailable` if it fails or takes too long."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{what}: {words[0]} was not done within {LIMIT_S} s") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        raise Unavailable(f"{what}: {words[0]} failed: {said[:300]}")
