"""Reads the tables all the time: `reader.py FOLDER JSON-of-topics`. Prints each fault; ends when its input does."""

import json
import sys
import threading
import time
import warnings
from pathlib import Path

from table_kills.foreign import AT_ANY_TIME, READERS
from table_kills.verdict import Offsets, faults, went_back


def look(folder: Path, topics: dict[str, int], before: dict[str, Offsets]) -> tuple[int, list[str]]:
    """At each table that is there; how many were read, and what is wrong."""
    found, count = [], 0
    for name in AT_ANY_TIME:
        table = folder / name
        there = (table / "_delta_log").is_dir() if name == "delta" else (table / "metadata").is_dir()
        if not there:
            continue
        try:
            seen, reached = READERS[name](table, topics)
        except Exception as error:  # noqa: BLE001  whatever a reader stumbles over is a fault
            if before.get(name):
                found.append(f"{name}: {type(error).__name__}: {error}")
            continue
        count += 1
        found += [f"{name}: {text}" for text in (*faults(seen, reached), *went_back(before.get(name, {}), reached))]
        before[name] = reached
    return count, found


def main() -> None:
    warnings.simplefilter("ignore")
    folder, topics = Path(sys.argv[1]), json.loads(sys.argv[2])
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    before: dict[str, Offsets] = {}
    reads = 0
    while not ended.is_set():
        count, found = look(folder, topics, before)
        reads += count
        for text in found:
            print(json.dumps({"fault": text}), flush=True)
        time.sleep(0.3)
    print(json.dumps({"reads": reads}), flush=True)


if __name__ == "__main__":
    main()
