"""Jars of a Java library with what it needs, from a Maven repository, where `mvn` can reach one."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_CENTRAL = "https://repo.maven.apache.org/maven2"
_REPOSITORIES = ("central", "gcs-maven-central-mirror")
"""The second one is that of Spark's own builds: named here, so that only Central (or its mirror) is asked."""
_COMPLETE = "complete"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences for colours, which no option turns off completely."""


class NoJars(Exception):
    """They cannot be had here. The text says why, in one line."""


def maven_jars(
    folder: Path,
    libraries: Sequence[str],
    *,
    managed: Sequence[str] = (),
    without: Sequence[str] = (),
    timeout_s: float = 90,
) -> list[Path]:
    """Return the jars of `libraries`, each "group:artifact:version", and their dependencies, fetched into `folder`.
    A fourth part of a name is its classifier: "test" for the classes of a library's tests.

    `managed` fixes versions of dependencies, `without` leaves out "group:artifact". Raises `NoJars`.
    """
    if not is_complete(folder):
        mvn = shutil.which("mvn")
        if mvn is None:
            raise NoJars("there is no mvn in PATH")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
            work = Path(name)
            (work / "pom.xml").write_text(_pom(libraries, managed, without))
            _run([mvn, "-B", "-ntp", "-q", "-U", *_COPY, f"-DoutputDirectory={work / 'jars'}"], work, timeout_s)
            (work / "jars" / _COMPLETE).touch()
            if not is_complete(folder):  # else another process was quicker
                (work / "jars").rename(folder)
    return sorted(folder.glob("*.jar"))


def is_complete(folder: Path) -> bool:
    """Return True if `maven_jars` has filled this folder before."""
    return (folder / _COMPLETE).exists()


_COPY = ("dependency:copy-dependencies", "-DincludeScope=runtime")


def _run(command: Sequence[str], folder: Path, timeout_s: float) -> None:
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise NoJars(f"mvn was not done after {timeout_s:g} s") from None
    if process.returncode != 0:
        lines = [line.removeprefix("[ERROR]").strip() for line in _COLOURS.sub("", said).splitlines()]
        raise NoJars(f"mvn: {next(filter(None, lines), 'failed without a word')[:300]}")


def _pom(libraries: Sequence[str], managed: Sequence[str], without: Sequence[str]) -> str:
    left_out = "".join(f"<exclusion>{_coordinates(each)}</exclusion>" for each in without)
    needed = "".join(
        f"<dependency>{_coordinates(each)}<exclusions>{left_out}</exclusions></dependency>" for each in libraries
    )
    fixed = "".join(f"<dependency>{_coordinates(each)}</dependency>" for each in managed)
    places = "".join(f"<repository><id>{name}</id><url>{_CENTRAL}</url></repository>" for name in _REPOSITORIES)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>test-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<repositories>{places}</repositories><dependencies>{needed}</dependencies>"
        f"<dependencyManagement><dependencies>{fixed}</dependencies></dependencyManagement></project>"
    )


def _coordinates(text: str) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    return "".join(f"<{name}>{part}</{name}>" for name, part in zip(names, text.split(":"), strict=False))
