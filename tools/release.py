"""Cut the list of changes for a version, and build that version. Nothing here publishes, pushes or tags.

    python tools/release.py cut 0.2.0 [--date 2026-11-24]   the version in pyproject.toml, the changes under its heading
    python tools/release.py build [--key FILE]              everything that is published, in build/release
    python tools/release.py verify FOLDER --signers FILE    what a user does by ssh-keygen and sha256sum

`build` exports the commit that is checked out, so no other file gets in, and refuses a tree with changes. All times in
the files are that of the commit (SOURCE_DATE_EPOCH); the distributions are built twice and must be equal byte by byte.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).resolve().parents[1]
SUMS = "SHA256SUMS"
NAMESPACE = "barnabas-release"
"""The purpose of the signature (`ssh-keygen -n`). Signatures of the same key for another purpose are refused."""
SIGNER = "releases@barnabas"
UNRELEASED = "## [Unreleased]"
DEVELOPERS = {"test", "docs", "peers", "contracts", "release"}
"""Extras that users of a broker do not install; the list of components leaves them out."""


class ReleaseError(Exception):
    """Something prevents the release; the text says what."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cutting = verbs.add_parser("cut")
    cutting.add_argument("version")
    cutting.add_argument("--date", type=date.fromisoformat, default=datetime.now(UTC).date())
    building = verbs.add_parser("build")
    building.add_argument("--out", type=Path, default=None, help="default: build/release")
    building.add_argument("--key", type=Path, default=None, help="private key of ssh-keygen that signs the checksums")
    building.add_argument("--no-site", action="store_true")
    building.add_argument("--no-try", action="store_true", help="do not install the wheel in an empty environment")
    verifying = verbs.add_parser("verify")
    verifying.add_argument("folder", type=Path)
    verifying.add_argument("--signers", type=Path, required=True, help="file of allowed signers: NAME PUBLIC-KEY")
    chosen = parser.parse_args()
    try:
        if chosen.verb == "cut":
            cut(chosen.root, chosen.version, chosen.date)
            sys.stdout.write(f"version {chosen.version}: look at `git diff`, commit, then `make release`\n")
        elif chosen.verb == "build":
            out = chosen.out or chosen.root / "build" / "release"
            build(chosen.root, out, chosen.key, with_site=not chosen.no_site, is_tried=not chosen.no_try)
            sys.stdout.write(next_steps(chosen.root, out, is_signed=chosen.key is not None))
        else:
            verify(chosen.folder, chosen.signers)
            sys.stdout.write(f"{chosen.folder}: the signature and all checksums are right\n")
    except ReleaseError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    return 0


# --- The version and the list of changes


def version_of(root: Path) -> str:
    with (root / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def cut(root: Path, version: str, day: date) -> None:
    """Write the version into pyproject.toml and docs/installation.md, and give the unreleased changes its heading."""
    before = version_of(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"{version} is not MAJOR.MINOR.PATCH")
    if [*map(int, version.split("."))] <= [*map(int, before.split("."))]:
        raise ReleaseError(f"{version} is not later than {before}, the version in pyproject.toml")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    head, found, rest = text.partition(f"{UNRELEASED}\n")
    if not found:
        raise ReleaseError(f"CHANGELOG.md has no heading {UNRELEASED}")
    if not rest.partition("\n## ")[0].strip():
        raise ReleaseError(f"CHANGELOG.md has nothing under {UNRELEASED}")
    changelog.write_text(f"{head}{UNRELEASED}\n\n## [{version}] - {day.isoformat()}\n{rest}", encoding="utf-8")
    replace_once(root / "pyproject.toml", f'\nversion = "{before}"\n', f'\nversion = "{version}"\n')
    replace_once(root / "docs" / "installation.md", f"barnabas-{before}-py3", f"barnabas-{version}-py3")


def replace_once(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ReleaseError(f"{path.name} has {old.strip()!r} {text.count(old)} times, not once")
    path.write_text(text.replace(old, new), encoding="utf-8")


def changes_of(root: Path, version: str) -> str:
    """Return what the list of changes says about a version."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no heading of {version}: run tools/release.py cut, and commit")
    unreleased = re.search(rf"^{re.escape(UNRELEASED)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if unreleased and unreleased[1].strip():
        raise ReleaseError(f"CHANGELOG.md has changes under {UNRELEASED} that {version} would contain without a word")
    return found[1].strip() + "\n"


# --- The files of a release


def build(root: Path, out: Path, key: Path | None, *, with_site: bool = True, is_tried: bool = True) -> None:
    """Build the commit that is checked out into a folder. Raises `ReleaseError`."""
    changed = git(root, "status", "--porcelain")
    if changed:
        raise ReleaseError(f"the tree has changes that no commit has:\n{changed}")
    if key is not None and not key.is_file():
        raise ReleaseError(f"there is no key {key}")
    version = version_of(root)
    changes = changes_of(root, version)
    epoch = int(git(root, "log", "-1", "--format=%ct"))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        for number in (1, 2):
            tree = export(root, Path(scratch) / f"tree-{number}")
            distributions(tree, Path(scratch) / f"dist-{number}", epoch)
        first, second = Path(scratch) / "dist-1", Path(scratch) / "dist-2"
        unequal = [path.name for path in first.iterdir() if path.read_bytes() != (second / path.name).read_bytes()]
        if unequal:
            raise ReleaseError(f"two builds of the same commit differ: {', '.join(unequal)}")
        if is_tried:
            run([sys.executable, "-P", str(tree / "tools" / "check_dist.py"), str(first)], tree)
        for path in sorted(first.iterdir()):
            shutil.copyfile(path, out / path.name)
        if with_site:
            site(tree, version, epoch, out / f"barnabas-{version}-site.tar.gz")
    (wheel,) = out.glob("*.whl")
    (out / f"barnabas-{version}.cdx.json").write_text(components(wheel, epoch), encoding="utf-8")
    (out / "CHANGES.md").write_text(f"# Barnabas {version}\n\n{changes}", encoding="utf-8")
    seal(out, key)


def _extract(tar: tarfile.TarFile, target: Path | str) -> None:
    """Extract all, with the filter `data` where Python has it: since 3.11.4."""
    if hasattr(tarfile, "data_filter"):
        tar.extraction_filter = tarfile.data_filter
    tar.extractall(target)


def export(root: Path, target: Path) -> Path:
    """Write the files of the commit, without other files, with the same modes everywhere."""
    archive = subprocess.run(
        ["git", "-c", "tar.umask=0022", "archive", "--format=tar", "HEAD"], cwd=root, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        _extract(tar, target)
    return target


def distributions(tree: Path, out: Path, epoch: int) -> None:
    """Build the source distribution and the wheel of a tree."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", str(out)]
    mask = os.umask(0o022)
    try:
        run([*command, str(tree)], tree, environment)
    finally:
        os.umask(mask)
    (source,) = out.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(source) as tar:
            _extract(tar, scratch)
        pack(Path(scratch), source, epoch)


def pack(folder: Path, target: Path, epoch: int) -> None:
    """Write a .tar.gz that depends on content and modes alone; setuptools writes the time into its own."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=plain)


def site(tree: Path, version: str, epoch: int, target: Path) -> None:
    """Write the documents as a site: the pages below VERSION/, and versions.json next to it, in the layout of mike."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "NO_MKDOCS_2_WARNING": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / version
        run([sys.executable, "-P", "-m", "mkdocs", "build", "--quiet", "--site-dir", str(pages)], tree, environment)
        versions = [{"version": version, "title": version, "aliases": ["latest"]}]
        (Path(scratch) / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={version}/index.html">\n'
        (Path(scratch) / "index.html").write_text(page, encoding="utf-8")
        pack(Path(scratch), target, epoch)


def components(wheel: Path, epoch: int) -> str:
    """Return the software bill of materials of a wheel: CycloneDX 1.6 as JSON.

    It names what the wheel's metadata require, and what those require in turn, with the versions of this environment,
    in which the release was tested. What only an extra needs is `optional`.
    """
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    described = metadata_of(wheel)
    name, version = described["Name"], described["Version"]
    digest = sha256(wheel)
    product = Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"{name}=={version}",
        description=described["Summary"],
        licenses=[LicenseExpression(described["License-Expression"])],
        purl=PackageURL("pypi", name=name, version=version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"{wheel.name}#sha256={digest}"),
        metadata=BomMetaData(component=product, timestamp=datetime.fromtimestamp(epoch, UTC)),
    )
    needs = Needs(described.get_all("Requires-Dist") or [], described.get_all("Provides-Extra") or [])
    made: dict[str, Component] = {}
    for need in sorted(needs.found):
        installed = needs.version(need)
        made[need] = Component(
            name=need,
            version=installed,
            type=ComponentType.LIBRARY,
            bom_ref=need,
            scope=ComponentScope.REQUIRED if need in needs.base else ComponentScope.OPTIONAL,
            purl=PackageURL("pypi", name=need, version=installed),
            properties=[
                Property(name="barnabas:requires", value=text) for text in sorted(needs.direct.get(need, set()))
            ],
        )
        bom.components.add(made[need])
    bom.register_dependency(product, [made[need] for need in needs.direct])
    for need, below in needs.found.items():
        bom.register_dependency(made[need], [made[each] for each in below])
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


class Needs:
    """The distributions that requirements lead to, as far as they are installed here."""

    def __init__(self, required: Iterable[str], extras: Iterable[str]) -> None:
        from packaging.requirements import Requirement

        self.found: dict[str, set[str]] = {}
        """Each distribution, and what it requires in turn."""
        self.base: set[str] = set()
        self.direct: dict[str, set[str]] = {}
        wanted = sorted(set(extras) - DEVELOPERS)
        for text in required:
            requirement = Requirement(text)
            marker = requirement.marker
            if normal(requirement.name) == "barnabas":
                continue
            is_base = marker is None or marker.evaluate({"extra": ""})
            if not is_base and not any(marker is not None and marker.evaluate({"extra": each}) for each in wanted):
                continue
            self.direct.setdefault(normal(requirement.name), set()).add(text)
            self._add(requirement.name, requirement.extras, is_base=is_base)

    def _add(self, name: str, extras: Iterable[str], *, is_base: bool) -> None:
        from packaging.requirements import Requirement

        name = normal(name)
        if name in self.found and (not is_base or name in self.base):
            return
        below = self.found.setdefault(name, set())
        if is_base:
            self.base.add(name)
        try:
            texts = distribution(name).requires or []
        except PackageNotFoundError:
            return
        for text in texts:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras)):
                below.add(normal(requirement.name))
                self._add(requirement.name, requirement.extras, is_base=is_base)

    def version(self, name: str) -> str | None:
        try:
            return distribution(name).version
        except PackageNotFoundError:
            return None


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata_of(wheel: Path) -> "Message[str, str]":
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


# --- Checksums and signature


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, key: Path | None) -> None:
    """Write the checksums of all files in a folder, and their signature if there is a key. Raises `ReleaseError`."""
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / SUMS).write_text(sums, encoding="ascii")
    if key is not None:
        run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(folder / SUMS)], folder)


def verify(folder: Path, signers: Path) -> None:
    """Check the signature of the checksums, and each file against them. Raises `ReleaseError`."""
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", SIGNER, "-n", NAMESPACE]
    with (folder / SUMS).open("rb") as sums:
        done = subprocess.run(
            [*command, "-s", str(folder / f"{SUMS}.sig")], stdin=sums, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ReleaseError(f"the signature of {SUMS} is wrong: {(done.stdout + done.stderr).strip()}")
    wrong = [name for name, digest in listed(folder) if sha256(folder / name) != digest]
    if wrong:
        raise ReleaseError(f"changed after the release: {', '.join(wrong)}")


def listed(folder: Path) -> Iterator[tuple[str, str]]:
    for line in (folder / SUMS).read_text(encoding="ascii").splitlines():
        digest, _, name = line.partition("  ")
        if not (folder / name).is_file():
            raise ReleaseError(f"{name} is missing")
        yield name, digest


# --- Around it


def next_steps(root: Path, out: Path, *, is_signed: bool) -> str:
    version, commit = version_of(root), git(root, "rev-parse", "--short", "HEAD")
    names = "".join(f"  {path.name}\n" for path in sorted(out.iterdir()))
    signature = "" if is_signed else f"{SUMS} is NOT signed: run it again with KEY=FILE before you publish.\n"
    return (
        f"{out}: Barnabas {version}, of commit {commit}; nothing was published\n{names}{signature}"
        "Next, by hand:\n"
        f"  git tag -s v{version} {commit} && git push origin v{version}\n"
        f"  upload the files, with {SUMS} and its signature; the wheel and the .tar.gz to your package index\n"
        "  unpack the site at its host, and add its version to the versions.json there\n"
    )


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
