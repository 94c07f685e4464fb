"""The latency of produce requests, one by one, while others begin TLS handshakes (RSA 4096) or guess passwords.

The attackers run in other processes, at a given rate as far as the machine lets them; the rate they reached is printed.
"""

import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Process, Value
from pathlib import Path
from typing import Any

import psutil
from harness import BareClient, Result, produce_frame

from barnabas import Admin
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message

SECONDS = 4.0
ROUNDS = 2
TOPIC = "bench"
ATTACKERS = 2
HANDSHAKES, SCRAM, PLAIN = "TLS handshakes", "SCRAM logins", "PLAIN logins"
RATES = {HANDSHAKES: 200, SCRAM: 1000, PLAIN: 1000}
LIMIT, LIMIT_PER_SECOND = "max.connection.creation.rate", 50
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    content = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(content)) + content


def _mechanism(name: str) -> bytes:
    return _frame(17, 1, struct.pack(">h", len(name)) + name.encode())


def _token(content: bytes) -> bytes:
    return _frame(36, 1, struct.pack(">i", len(content)) + content)


def shake_hands(port: int) -> None:
    """Complete a TLS handshake, and leave."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 20) as sock, context.wrap_socket(sock):
        pass


def guess_plain(port: int) -> None:
    """Log in with a wrong password, and leave without waiting for the refusal."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(_mechanism("PLAIN"))
        sock.recv(4096)
        sock.sendall(_token(b"\0admin\0guess"))


def guess_scram(port: int) -> None:
    """Log in with a wrong proof, and leave without waiting for the refusal."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(_mechanism("SCRAM-SHA-256"))
        sock.recv(4096)
        sock.sendall(_token(b"n,,n=admin,r=abcdefgh"))
        answer = sock.recv(4096)
        nonce = answer[answer.index(b"r=") + 2 :].split(b",")[0]
        sock.sendall(_token(b"c=biws,r=" + nonce + b",p=" + b"A" * 43 + b"="))


ATTACKS: dict[str, Callable[[int], None]] = {HANDSHAKES: shake_hands, SCRAM: guess_scram, PLAIN: guess_plain}


def _attack(what: str, port: int, rate: float, count: Any) -> None:
    due = time.monotonic()
    while True:
        with suppress(OSError, ValueError):
            ATTACKS[what](port)
        with count.get_lock():
            count.value += 1
        due = max(due + 1 / rate, time.monotonic() - 0.2)
        time.sleep(max(0.0, due - time.monotonic()))


@contextmanager
def attacked(what: str, port: int) -> Iterator[Any]:
    """Attack while the block runs; gives the number of attempts."""
    count = Value("i", 0)
    attackers = [Process(target=_attack, args=(what, port, RATES[what] / ATTACKERS, count)) for _ in range(ATTACKERS)]
    for each in attackers:
        each.start()
    try:
        yield count
    finally:
        for each in attackers:
            each.kill()
            each.join()


@contextmanager
def broker(folder: Path, **more: str) -> Iterator[tuple[psutil.Process, list[int]]]:
    """A broker with a listener in plain text, one with SASL and one with TLS; gives its process and their ports."""
    key, chain = folder / "key.pem", folder / "chain.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:4096", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(chain)], check=True, capture_output=True)
    store = folder / "broker.pem"
    store.write_text(key.read_text() + chain.read_text())
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.scram.bootstrap.users": "SCRAM-SHA-256=[name=admin,password=secret]",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_admin="secret";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        **more,
    }
    command = [str(Path(sys.executable).parent / "barnabas"), "serve", "--data", str(folder / "data")]
    for scheme in ("kafka", "sasl_plaintext", "ssl"):
        command += ["--listen", f"{scheme}://127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(
        [*command, "--log-level", "error"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        if line[:2] != ["barnabas", "ready"]:
            raise RuntimeError(f"the broker did not start: {line}")
        yield psutil.Process(process.pid), [int(url.rpartition(":")[2]) for url in line[2:]]
    finally:
        process.terminate()
        process.wait(30)


def _latencies(client: BareClient, frame: bytes) -> list[float]:
    found, until = [], time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < until:
        client.exchange(frame)
        found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


class Attacked:
    """A broker, and a client that produces to it."""

    def __init__(self, stack: ExitStack, **settings: str) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        self.process, (plain, self.sasl, self.tls) = stack.enter_context(broker(folder, **settings))
        with Admin(f"127.0.0.1:{plain}") as admin:
            admin.create_topic(TOPIC)
        self.client = BareClient("127.0.0.1", plain)
        stack.callback(self.client.close)

    def latencies(self) -> list[float]:
        frame = produce_frame(TOPIC, 0, bytes(encode_batch([Message(value=bytes(100))], now_ms=1_700_000_000_000)))
        return _latencies(self.client, frame)

    def cpu_seconds(self) -> float:
        return float(sum(self.process.cpu_times()[:2]))


def measure() -> list[Result]:
    with ExitStack() as stack:
        free = Attacked(stack)
        limited = Attacked(stack, **{LIMIT: str(LIMIT_PER_SECOND)})
        rounds = {f"{RATES[what]} {what}/s": (what, free) for what in ATTACKS}
        rounds |= {f"{text}, {LIMIT_PER_SECOND} connections/s": (what, limited) for text, (what, _) in rounds.items()}
        alone: list[list[float]] = []
        found: dict[str, list[tuple[list[float], float, float]]] = {text: [] for text in rounds}
        for _ in range(ROUNDS):
            alone.append(free.latencies())
            for text, (what, server) in rounds.items():
                with attacked(what, server.tls if what == HANDSHAKES else server.sasl) as count:
                    time.sleep(0.5)
                    before, cpu = count.value, server.cpu_seconds()
                    latencies = server.latencies()
                    used = (server.cpu_seconds() - cpu) / SECONDS
                    found[text].append((latencies, (count.value - before) / SECONDS, used))
        quiet = min(alone, key=_p99)
        results = [Result("produce latency without an attack: p99", _p99(quiet), "ms", details=_details(quiet))]
        for text, each in found.items():
            latencies, rate, used = min(each, key=lambda one: _p99(one[0]))
            details = _details(latencies) | {"attempts 1/s": rate, "CPU of the broker": used}
            results.append(Result(f"... during {text}: p99", _p99(latencies), "ms", details=details))
    return results


def _p99(latencies: list[float]) -> float:
    return latencies[int(len(latencies) * 0.99)]


def _details(latencies: list[float]) -> dict[str, float]:
    return {"p50 ms": latencies[len(latencies) // 2], "max ms": latencies[-1], "requests 1/s": len(latencies) / SECONDS}


if __name__ == "__main__":
    for result in measure():
        print(result)
