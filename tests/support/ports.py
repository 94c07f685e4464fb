"""Ports for servers that get them from a configuration: they bind them later, or release them and bind them again.

A port of the kernel's ephemeral range that was free a moment ago may be given to any process that connects or listens
on port 0 meanwhile. These lie outside of that range. Each process takes them from slices of its own, which it owns by
a socket that is bound to the first port of the slice; none is given out twice.
"""

import atexit
import os
import socket
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_ELSEWHERE = 32_768, 65_535
"""The range of Linux by default, and of macOS (RFC 6335: 49152 and up)."""
_FIRST, _LAST = 10_000, 65_535
_SLICE = 64

_owned: list[socket.socket] = []


@atexit.register
def _give_up() -> None:
    for mark in _owned:
        mark.close()


def free_ports(count: int) -> list[int]:
    """Return ports without a listener, which no other caller gets."""
    found: list[int] = []
    while len(found) < count:
        port = next(_ports)
        if is_free(port):
            found.append(port)
    return found


def free_pairs(count: int) -> list[int]:
    """Return ports of which the following one is free, too, and reserved for the caller."""
    found: list[int] = []
    before = 0
    while len(found) < count:
        port = next(_ports)
        if not is_free(port):
            continue
        if port == before + 1:
            found.append(before)
            before = 0
        else:
            before = port
    return found


def free_port() -> int:
    return free_ports(1)[0]


def _given_out() -> Iterator[int]:
    """Ports of one slice after the other, once; then they are all given out again."""
    while True:
        for first in _slices():
            if _own(first):
                yield from range(first + 1, first + _SLICE)


def _slices() -> Iterator[int]:
    low, high = _ephemeral()
    spaces = [range(_FIRST, low - _SLICE, _SLICE), range(high + 1, _LAST - _SLICE, _SLICE)]
    starts = list(chain(*spaces)) or list(range(_FIRST, _LAST - _SLICE, _SLICE))
    begin = os.getpid() * 7 % len(starts)  # processes that begin together begin apart
    yield from starts[begin:]
    yield from starts[:begin]


def _ephemeral() -> tuple[int, int]:
    try:
        low, high = map(int, _EPHEMERAL.read_text().split())
    except OSError:
        return _EPHEMERAL_ELSEWHERE
    return low, high


def _own(first: int) -> bool:
    """Return True if the slice is ours; it is until the process ends."""
    mark = socket.socket()
    try:
        mark.bind(("127.0.0.1", first))
    except OSError:
        mark.close()
        return first in (each.getsockname()[1] for each in _owned)
    _owned.append(mark)
    return True


def is_free(port: int) -> bool:
    """At any address. Without SO_REUSEADDR, so that what is left of connections counts as well."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


_ports = _given_out()
