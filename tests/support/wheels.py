"""Wheels of this tree and of an older commit, and environments that have them beside the libraries of this one."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from io import BytesIO
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]


def copy_tree(checkout: Path, target: Path) -> Path:
    """Copy what git knows of the checkout, as it stands there, without tests, documents and benchmarks."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        if not name.startswith(("tests/", "docs/", "benchmarks/")) and (checkout / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / name, target / name)
    return target


def export_commit(checkout: Path, commit: str, target: Path) -> Path:
    """Write the tree of an older commit; skip the test where the history is not complete."""
    archive = subprocess.run(["git", "archive", "--format=tar", commit], cwd=checkout, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"the history has no commit {commit}: a shallow clone, or no git checkout")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(target)
    return target


def build_wheel(source: Path, folder: Path, timeout_s: float = 5 * PATIENCE_S) -> Path:
    """Build the wheel of a tree without the network."""
    command = [*PIP, "wheel", str(source), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run(command, check=True, timeout=timeout_s, capture_output=True)
    (wheel,) = folder.glob("barnabas-*.whl")
    return wheel


class Installed:
    """An environment of its own with a wheel in it; all other libraries are those of this environment."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        self.command = folder / "bin" / "barnabas"
        done = subprocess.run(
            [*PIP, "--python", str(self.python), "install", "--no-deps", "--no-index", str(wheel)],
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = folder / "lib" / name / "site-packages"
        # A folder on the path: the .pth files in it, one of them Barnabas' editable installation, are not read.
        (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")

    def run(self, script: Path, *words: str, timeout_s: float = 5 * PATIENCE_S) -> "dict[str, object]":
        """Run a script by this environment's Python; return the object that it prints."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(self.python), "-P", str(script), *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return printed
