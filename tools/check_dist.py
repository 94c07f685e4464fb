"""Installs each wheel in an empty environment with an empty home, and does there what the README shows first.

    python tools/check_dist.py dist

Also looks whether the source distribution next to it has the documents, the tests and the licence. Ends with 1 and a
line for each thing that is wrong.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
WANTED = (
    "LICENSE",
    "README.md",
    "docs/index.md",
    "mkdocs.yml",
    "tests/conftest.py",
    "Makefile",
    "examples",
    "benchmarks",
)
SECONDS = 300
NEEDS = {
    "load --topics t --into x --bootstrap 127.0.0.1:1": "spark",
    "report x": "spark",
    "table describe x": "spark",
    "sql -e x": "spark",
    "demo": "demo",
    "examples list": "tables",
    "query select --bootstrap 127.0.0.1:1": "query",
    "registry --bootstrap 127.0.0.1:1": "registry",
    "audit --bootstrap 127.0.0.1:1 --html x": "audit",
    "cluster start --data x": "cluster",
    "topics list --zk-connect 127.0.0.1:1": "zookeeper",
    "topics list --etcd-connect 127.0.0.1:1": "etcd",
}
"""Commands that the base cannot carry out → the extra that they name."""


def main(folder: Path) -> None:
    wheels = sorted(folder.glob("barnabas-*.whl"))
    (source,) = folder.glob("barnabas-*.tar.gz")
    wrong = missing_in(source)
    if not wheels:
        wrong.append(f"{folder} has no wheel")
    for wheel in wheels:
        with tempfile.TemporaryDirectory() as scratch:
            wrong += [f"{wheel.name}: {fault}" for fault in tried(wheel, Path(scratch))]
    if wrong:
        sys.exit("\n".join(wrong))
    names = ", ".join(each.name for each in (*wheels, source))
    sys.stdout.write(f"{names}: complete, and tried in an empty environment\n")


def missing_in(source: Path) -> list[str]:
    """Return the files that the source distribution lacks."""
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return [
        f"{source.name} lacks {name}"
        for name in WANTED
        if not any(n == name or n.startswith(f"{name}/") for n in names)
    ]


def tried(wheel: Path, scratch: Path) -> list[str]:
    """Return the faults of an installation of the base."""
    place = scratch / "environment"
    venv.create(place, with_pip=True)
    home = scratch / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}

    def run(*words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=home, env=environment, input=given, capture_output=True, text=True, timeout=SECONDS, check=False
        )

    installed = run("pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    if installed.returncode:
        return [f"it cannot be installed: {installed.stderr.strip()}"]
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"```python\n(from barnabas import Broker.*?)```", readme, re.DOTALL)
    if first is None:
        return ["the README has no first example that begins with `from barnabas import Broker`"]
    wrong = []
    shown = run("python", "-c", first[1])
    if shown.returncode or "hello" not in shown.stdout:
        wrong.append(f"the README's first example fails: {shown.stdout}{shown.stderr}")
    version = run("barnabas", "--version")
    kind = "" if wheel.name.endswith("-none-any.whl") else r" \(compiled\)"
    if not re.fullmatch(rf"barnabas \d+\.\d+\.\d+{kind}\n", version.stdout):
        wrong.append(f"barnabas --version says {version.stdout!r}{version.stderr}")
    for command, extra in NEEDS.items():
        refused = run("barnabas", *command.split())
        if refused.returncode != 2 or refused.stderr.count("\n") != 1 or f"[{extra}]'" not in refused.stderr:
            wrong.append(f"barnabas {command}: a missing extra is not reported in one line: {refused.stderr!r}")
    return wrong


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
