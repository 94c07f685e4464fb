"""The pages of the web console with many topics and groups: their times, and the console's memory.

    .venv/bin/python -m benchmarks.console_pages --topics 10000 --groups 15000

Prints, for rounds over the pages of lists, the time of each, then the resident memory of the console's process.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from barnabas import Admin, Producer

COMMAND = Path(sys.executable).with_name("barnabas")
PAGES = ("/", "/topics", "/topics?q=77&sort=-size", "/topics/topic-00007/messages", "/groups", "/groups?sort=-late&q=9",
         "/group?id=group-00003", "/transactions")  # fmt: skip


def _started(*words: str) -> tuple[subprocess.Popen[bytes], str]:
    process = subprocess.Popen([str(COMMAND), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    return process, process.stdout.readline().decode().split()[-1]


def _fill(address: str, topics: int, groups: int) -> None:
    with Admin(address, default_api_timeout_ms=600_000, request_timeout_ms=300_000) as admin:
        for first in range(0, topics, 500):
            admin.create_topics([f"topic-{number:05d}" for number in range(first, min(topics, first + 500))])
        for number in range(groups):
            admin.alter_group_offsets(f"group-{number:05d}", {(f"topic-{number % topics:05d}", 0): 0})


def _produce(address: str, messages: int) -> None:
    with Producer(address) as producer:
        for number in range(messages):
            producer.send("many", b'{"id": %d, "title": "Emma", "price": 12}' % number, b"key-%d" % number)


def _page(url: str) -> float:
    """Return the milliseconds of a page; while the cluster is read for the first time it is asked again."""
    started = time.perf_counter()
    while True:
        with urllib.request.urlopen(url) as answer:
            answer.read()
            if answer.status == 200:
                return (time.perf_counter() - started) * 1000
        time.sleep(0.2)


def _memory_mb(process: subprocess.Popen[bytes]) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--messages", type=int, default=100_000, help="of the downloads")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker, address = _started("serve", "--data", folder, "--listen", "kafka://127.0.0.1:0")
        address = address.removeprefix("kafka://")
        try:
            _fill(address, given.topics, given.groups)
            console, url = _started("console", "--bootstrap", address, "--listen", "127.0.0.1:0")
            try:
                for number in range(given.rounds):
                    for page in PAGES:
                        print(f"round {number} {page}: {_page(url + page):.0f} ms", flush=True)
                    print(f"round {number}: {_memory_mb(console)} MB", flush=True)
                    time.sleep(10)
                _produce(address, given.messages)
                for form in ("ndjson", "csv", "parquet"):
                    page = f"/topics/many/messages/download?from=oldest&limit={given.messages}&format={form}"
                    print(f"download of {form}: {_page(url + page):.0f} ms, then {_memory_mb(console)} MB", flush=True)
            finally:
                console.terminate()
                console.wait()
        finally:
            broker.terminate()
            broker.wait()


if __name__ == "__main__":
    main()
