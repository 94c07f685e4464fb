"""Ports of the tests' servers, and ports that stay reserved while no server listens on them."""

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.ports import free_pairs, free_ports, is_free

from barnabas.app.reserve_port import KEEPS, reserve_port

_TESTS = Path(__file__).resolve().parents[2]
_PROGRAM = """
import json, sys
from support.ports import free_ports
print(json.dumps(free_ports(100)), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_to_two_processes_at_a_time() -> None:
    here = set(free_ports(100))
    with ExitStack() as stack:
        others = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-S", "-c", _PROGRAM], cwd=_TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            for _ in range(2)
        ]
        given = [set(json.loads(other.stdout.readline())) for other in others if other.stdout is not None]
        for other in others:
            other.communicate()
    assert len(here) == 100
    assert len(here.union(*given)) == 300


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the range is read from /proc")
def test_free_ports_lie_outside_ephemeral_range() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if high - low > 50_000:
        pytest.skip("the range leaves no room beside it")
    assert all(not low <= port <= high for port in free_ports(200))


def test_pairs_do_not_meet() -> None:
    ports = free_pairs(20)
    assert len({*ports, *(port + 1 for port in ports)}) == 40


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_listening_port_is_not_free(host: str) -> None:
    with socket.create_server((host, 0)) as server:
        assert not is_free(server.getsockname()[1])


@pytest.mark.skipif(not KEEPS, reason="this system keeps no port")
def test_reserved_port_is_usable_only_with_reuse_address() -> None:
    with ExitStack() as keep:
        port = reserve_port("127.0.0.1", keep)
        for _ in range(2):
            with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
                pass
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
