"""Looks for bytes that a decoder does not stand, guided by the code that they reach: what `make fuzz` runs.

    python tools/fuzz.py [--minutes N] [--target NAME] [--jobs N]
    python tools/fuzz.py --target NAME --again FILE

Needs atheris, which `make fuzz` installs. What was reached is kept in .build/fuzz/corpus for the next time. An input
that brings out an undeclared error, or takes too long or too much memory, is kept in .build/fuzz/findings, reported
with the command that tries it again, and makes the exit code 1.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / ".build" / "fuzz"
BYTES_MAX = 4096
SECONDS_MAX = 5
"""The bound for one input, with the slow-down by its observation."""
MEMORY_MAX_MB = 1024
"""The bound for the whole process, with Python and the observation."""
SECONDS_MIN = 3


def targets() -> dict[str, object]:
    sys.path.insert(0, str(ROOT / "tests"))
    from fuzz.targets import TARGETS

    return dict(TARGETS)


def file_name(name: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in name)


def hunt(name: str, seconds: int) -> None:
    """In a process of its own: never returns."""
    import atheris

    with atheris.instrument_imports(include=["barnabas"]):
        targets()
        from fuzz.bounds import attempt
        from fuzz.targets import TARGETS
    target, place = TARGETS[name], file_name(name)
    corpus, findings = BUILD / "corpus" / place, BUILD / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={BYTES_MAX}",
        f"-timeout={SECONDS_MAX}",
        f"-rss_limit_mb={MEMORY_MAX_MB}",
        f"-artifact_prefix={findings / place}-",
        "-print_final_stats=1",
    ]
    atheris.Setup(["fuzz", *options, str(corpus)], lambda data: attempt(target, data))
    atheris.Fuzz()


def again(name: str, file: Path) -> None:
    """Raises what it raised."""
    targets()
    from fuzz.bounds import attempt_traced
    from fuzz.targets import TARGETS

    attempt_traced(TARGETS[name], file.read_bytes())
    sys.stdout.write(f"{name} stands {file}\n")


def run(name: str, seconds: int) -> tuple[str, int, str]:
    """(name, inputs tried, what was found)."""
    command = [sys.executable, "-P", __file__, "--target", name, "--hunt", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=ROOT)
    said = done.stdout + done.stderr
    tried = next((int(line.split()[-1]) for line in said.splitlines() if "number_of_executed_units" in line), 0)
    if not done.returncode:
        return name, tried, ""
    lines = said.splitlines()
    wrote = next((line.split()[-1] for line in lines if "Test unit written to" in line), "")
    why = next((line for line in lines if line.startswith(("fuzz.bounds.Finding", "Finding"))), "")
    why = why or next((line for line in lines if "ERROR: libFuzzer" in line), said[-400:])
    if wrote:
        why += f"\n  again: python tools/fuzz.py --target '{name}' --again {Path(wrote).relative_to(ROOT)}"
    return name, tried, why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--hunt", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.again is not None:
        again(chosen.target, chosen.again)
        return 0
    if chosen.hunt is not None:
        hunt(chosen.target, chosen.hunt)
    names = [chosen.target] if chosen.target else list(targets())
    seconds = max(SECONDS_MIN, round(chosen.minutes * 60 * chosen.jobs / len(names)))
    began, tried, failed = time.monotonic(), 0, 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for name, count, why in pool.map(lambda name: run(name, seconds), names):
            tried += count
            if why:
                failed += 1
                sys.stdout.write(f"{name}: {why}\n")
    took = time.monotonic() - began
    sys.stdout.write(f"{tried} inputs for {len(names)} decoders in {took:.0f} s; {failed or 'none'} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
