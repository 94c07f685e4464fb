"""Fetching 1 MB chunks from the broker, against a bare loopback server that only calls sendfile.

Both serve the same regions of the same file, one a request, and the client walks over the batches of both. A file that
was written in one piece would be cheaper to send: its pages are larger.

Each round of either has a new connection. A client that sleeps is woken for each 64 KB, which costs a multiple where
that is on another core of a virtual machine: rounds differ threefold, for both alike, and the best of many counts.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from harness import BareClient, Result, broker, fetch_frame, next_offset, produce_frame, records_of

from barnabas import Message
from barnabas.core.message.batch_writer import encode_batch

CHUNK = 1024 * 1024
TOTAL = 256 * CHUNK
ROUNDS = 24
TOPIC = "bench"

# Answers each request with a 4-byte length and 1 MB of the file, `step` bytes further each time, round and round.
_BARE_SERVER = """
import os, socket, sys
path, chunk, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = os.open(path, os.O_RDONLY)
size = os.fstat(file).st_size
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
at = 0
while connection.recv(4096):
    connection.sendall(chunk.to_bytes(4, "big"))
    sent = 0
    while sent < chunk:
        sent += os.sendfile(connection.fileno(), file, at + sent, chunk - sent)
    at = at + step if at + step + chunk <= size else 0
"""


def _bare(path: Path, step: int) -> float:
    command = [sys.executable, "-c", _BARE_SERVER, str(path), str(CHUNK), str(step)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        client = BareClient("127.0.0.1", int(server.stdout.readline()))
        started = time.perf_counter()
        done = 0
        while done < TOTAL:
            chunk = client.exchange(fetch_frame(TOPIC, 0, done, CHUNK))
            done += len(chunk)
            next_offset(chunk)
        rate = done / (time.perf_counter() - started)
        client.close()
        return rate
    finally:
        server.kill()
        server.wait()


def _fetch(client: BareClient, end: int) -> float:
    started = time.perf_counter()
    done, offset = 0, 0
    while done < TOTAL:
        records = records_of(client.exchange(fetch_frame(TOPIC, 0, offset, CHUNK)), TOPIC)
        done += len(records)
        offset = next_offset(records)
        if offset >= end:
            offset = 0
    return done / (time.perf_counter() - started)


def measure() -> list[Result]:
    batch = bytes(encode_batch([Message(value=os.urandom(200))] * 500, now_ms=1_700_000_000_000))
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as data, broker(Path(data)) as running:
        client = BareClient(running.host, running.port)
        client.socket.settimeout(30)
        _create_topic(running.bootstrap)
        count = 64 * CHUNK // len(batch)
        for _ in range(count):
            client.exchange(produce_frame(TOPIC, 0, batch))
        [segment] = Path(data).rglob(f"{TOPIC}-0/*.log")
        whole = CHUNK // len(batch) * len(batch)
        ours, bare = [], []
        client.close()
        for _ in range(ROUNDS):
            bare.append(_bare(segment, whole))
            client = BareClient(running.host, running.port)
            ours.append(_fetch(client, count * 500))
            client.close()
    details = {"ours MB/s": max(ours) / CHUNK, "sendfile MB/s": max(bare) / CHUNK}
    details |= {"median": median(ours) / CHUNK, "of sendfile": median(bare) / CHUNK}
    return [Result("fetch of 1 MB chunks / bare sendfile", max(ours) / max(bare), "", 0.7, details=details)]


def _create_topic(bootstrap: str) -> None:
    from barnabas import Admin

    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1)


if __name__ == "__main__":
    socket.setdefaulttimeout(60)
    print(measure())
