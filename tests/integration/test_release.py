"""`make release` works on a copy: the version, the list of changes, the files, their checksums and signature."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from configparser import RawConfigParser
from datetime import date
from email.message import Message
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from support.waiting import PATIENCE_S
from support.wheels import build_wheel, copy_tree

import barnabas

CHANGES = """# Changes

## [Unreleased]

### Added

- A thing.

## [0.1.0] - 2026-01-02

- The first.
"""
DAY = date(2026, 11, 24)


@pytest.fixture(scope="module")
def release(checkout: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", checkout / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "barnabas"\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / "docs" / "installation.md").write_text("pip install dist/barnabas-0.1.0-py3-none-any.whl\n")
    return tmp_path


def test_cut_gives_unreleased_changes_the_heading_of_the_version(release: ModuleType, tree: Path) -> None:
    release.cut(tree, "0.2.0", DAY)
    assert release.version_of(tree) == "0.2.0"
    assert "barnabas-0.2.0-py3-none-any.whl" in (tree / "docs" / "installation.md").read_text()
    headings = re.findall("^## .*", (tree / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings == ["## [Unreleased]", "## [0.2.0] - 2026-11-24", "## [0.1.0] - 2026-01-02"]
    assert release.changes_of(tree, "0.2.0") == "### Added\n\n- A thing.\n"
    assert release.changes_of(tree, "0.1.0") == "- The first.\n"


@pytest.mark.parametrize(
    ("version", "text"),
    [("0.1.0", "not later than 0.1.0"), ("0.0.9", "not later"), ("0.2", "not MAJOR.MINOR.PATCH"), ("v0.2.0", "not MA")],
)
def test_cut_of_an_older_or_misspelt_version_is_refused(
    release: ModuleType, tree: Path, version: str, text: str
) -> None:
    with pytest.raises(release.ReleaseError, match=text):
        release.cut(tree, version, DAY)
    assert release.version_of(tree) == "0.1.0"
    assert (tree / "CHANGELOG.md").read_text() == CHANGES


def test_cut_without_changes_is_refused(release: ModuleType, tree: Path) -> None:
    release.cut(tree, "0.2.0", DAY)
    with pytest.raises(release.ReleaseError, match="nothing under"):
        release.cut(tree, "0.3.0", DAY)


def test_release_without_a_heading_of_its_version_is_refused(release: ModuleType, tree: Path) -> None:
    with pytest.raises(release.ReleaseError, match=r"no heading of 0\.2\.0"):
        release.changes_of(tree, "0.2.0")


def test_release_of_a_version_with_further_unreleased_changes_is_refused(release: ModuleType, tree: Path) -> None:
    with pytest.raises(release.ReleaseError, match=r"that 0\.1\.0 would contain"):
        release.changes_of(tree, "0.1.0")


def test_release_of_a_tree_with_changes_is_refused(release: ModuleType, tree: Path) -> None:
    repository(tree)
    (tree / "left.py").write_text("")
    with pytest.raises(release.ReleaseError, match=r"left\.py"):
        release.build(tree, tree / "out", None)
    assert not (tree / "out").exists()


def test_signed_checksums_refuse_a_changed_file_and_another_key(release: ModuleType, tmp_path: Path) -> None:
    key, signers = throw_away_key(tmp_path, "ours")
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.whl").write_bytes(b"wheel")
    release.seal(folder, key)
    release.verify(folder, signers)
    checked = subprocess.run(["sha256sum", "--check", "--strict", release.SUMS], cwd=folder, check=False)
    assert checked.returncode == 0

    (folder / "a.whl").write_bytes(b"wheel!")
    with pytest.raises(release.ReleaseError, match=r"changed after the release: a\.whl"):
        release.verify(folder, signers)
    sums = (folder / release.SUMS).read_text()
    (folder / release.SUMS).write_text(f"{release.sha256(folder / 'a.whl')}  a.whl\n")
    with pytest.raises(release.ReleaseError, match="the signature of SHA256SUMS is wrong"):
        release.verify(folder, signers)
    (folder / release.SUMS).write_text(sums)
    with pytest.raises(release.ReleaseError, match="the signature of SHA256SUMS is wrong"):
        release.verify(folder, throw_away_key(tmp_path, "theirs")[1])
    (folder / "a.whl").unlink()
    with pytest.raises(release.ReleaseError, match=r"a\.whl is missing"):
        release.verify(folder, signers)


def test_version_stands_in_pyproject_alone(checkout: Path) -> None:
    version = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", barnabas.__version__)
    assert f'"{version}"' not in (checkout / "__init__.py").read_text()


@pytest.mark.slow
def test_wheel_has_its_metadata_commands_extras_and_all_files(checkout: Path, tmp_path: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    wheel = build_wheel(copy_tree(checkout, tmp_path / "source"), tmp_path / "wheels")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (home,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        points = RawConfigParser(delimiters=("=",))
        points.read_string(archive.read(f"{home}/entry_points.txt").decode())
        described = metadata(archive.read(f"{home}/METADATA").decode())
    version = project["project"]["version"]
    assert wheel.name == f"barnabas-{version}-py3-none-any.whl"
    assert (described["Name"], described["Version"]) == ("barnabas", version)
    assert (described["Requires-Python"], described["License-Expression"]) == (">=3.11", "Apache-2.0")
    assert f"{home}/licenses/LICENSE" in names
    assert "barnabas/py.typed" in names
    assert missing_files(checkout, project["tool"]["setuptools"]["packages"], names) == []
    assert [name for name in names if name.startswith(("tests/", "barnabas/tests/", "barnabas/tools/"))] == []

    extras = set(project["project"]["optional-dependencies"])
    assert set(described.get_all("Provides-Extra") or []) == extras
    required = [Requirement(text) for text in described.get_all("Requires-Dist") or []]
    own = {extra for each in required if each.name == "barnabas" for extra in each.extras}
    assert own <= extras
    assert all(any(each.marker and each.marker.evaluate({"extra": extra}) for each in required) for extra in extras)

    loaded = [EntryPoint(name, value, group) for group in points.sections() for name, value in points[group].items()]
    assert len(loaded) >= 14
    assert all(callable(point.load()) or isinstance(point.load(), ModuleType) for point in loaded)


@pytest.mark.slow
@pytest.mark.process
def test_release_is_complete_reproducible_and_signed(checkout: Path, tmp_path: Path, release: ModuleType) -> None:
    source = copy_tree(checkout, tmp_path / "source")
    for folder in ("docs", "tests/docs", "tests/support"):
        shutil.copytree(checkout / folder, source / folder, dirs_exist_ok=True)
    changes = source / "CHANGELOG.md"
    text = changes.read_text(encoding="utf-8")  # it has nothing under this heading right after a release
    changes.write_text(
        text.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n\n- A test.\n", 1), encoding="utf-8"
    )
    release.cut(source, "9.0.0", DAY)
    repository(source)
    key, signers = throw_away_key(tmp_path, "ours")
    command = [sys.executable, "-P", str(source / "tools" / "release.py"), "build", "--no-try"]
    done = subprocess.run(
        [*command, "--key", str(key)], cwd=source, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    out = source / "build" / "release"
    assert {path.name for path in out.iterdir()} == {
        "barnabas-9.0.0-py3-none-any.whl",
        "barnabas-9.0.0.tar.gz",
        "barnabas-9.0.0.cdx.json",
        "barnabas-9.0.0-site.tar.gz",
        "CHANGES.md",
        "SHA256SUMS",
        "SHA256SUMS.sig",
    }
    assert "nothing was published" in done.stdout
    assert "git tag -s v9.0.0" in done.stdout
    release.verify(out, signers)
    assert len((out / "SHA256SUMS").read_text().splitlines()) == 5
    with tarfile.open(out / "barnabas-9.0.0-site.tar.gz") as tar:
        pages = {member.name for member in tar}
        assert {"versions.json", "index.html", "9.0.0/index.html", "9.0.0/operations.html"} <= pages
        assert {member.mtime for member in tar} == {release_time(source)}
    assert_lists_components(
        json.loads((out / "barnabas-9.0.0.cdx.json").read_text()), release.sha256(next(out.glob("*.whl")))
    )

    # `build` itself compares two builds of wheel and source; a second run makes the other files again, too.
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    release.build(source, tmp_path / "again", key, is_tried=False)
    again = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert [name for name in first if first[name] != again[name]] == []


def assert_lists_components(bom: dict[str, object], digest: str) -> None:
    """Check the list of components against the schema of CycloneDX, and what it says of Barnabas."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom)) is None
    product = bom["metadata"]["component"]  # type: ignore[index]
    assert (product["name"], product["version"], product["purl"]) == ("barnabas", "9.0.0", "pkg:pypi/barnabas@9.0.0")
    assert product["hashes"] == [{"alg": "SHA-256", "content": digest}]
    found = {each["name"]: each for each in bom["components"]}  # type: ignore[attr-defined]
    base = {"attrs", "crc32c", "lz4", "pluggy", "prometheus-client", "python-snappy", "rich", "typer", "zstandard"}
    assert {name for name in base if found[name]["scope"] != "required"} == set()
    assert found["pyspark"]["scope"] == found["kazoo"]["scope"] == "optional"
    assert {"pytest", "mypy", "mkdocs", "confluent-kafka"} & set(found) == set()
    assert all("version" in found[name] for name in base)


def release_time(source: Path) -> int:
    observed = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=source, capture_output=True, text=True, check=True
    )
    return int(observed.stdout)


def missing_files(checkout: Path, packages: list[str], names: set[str]) -> list[str]:
    """Return the files of the packages that a wheel lacks."""
    wanted = [
        Path("barnabas", *package.split(".")[1:], path.name)
        for package in packages
        for path in (checkout / Path(*package.split(".")[1:])).glob("*")
        if path.suffix in (".py", ".typed", ".j2", ".css", ".html", ".js") and path.name != "setup.py"
    ]
    return [str(path) for path in wanted if path.as_posix() not in names]


def metadata(text: str) -> "Message[str, str]":
    from email.parser import HeaderParser

    return HeaderParser().parsestr(text)


def repository(folder: Path) -> None:
    """Commit all of a folder."""
    who = ["-c", "user.name=Releaser", "-c", "user.email=releaser@example.org"]
    for words in (["init", "-q"], ["add", "--all"], [*who, "commit", "-q", "-m", "a release"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def throw_away_key(folder: Path, name: str) -> tuple[Path, Path]:
    """Return a new private key, and a file of allowed signers that has its public half."""
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True)
    signers = folder / f"{name}.signers"
    signers.write_text(f"releases@barnabas {key.with_suffix('.pub').read_text()}")
    return key, signers
