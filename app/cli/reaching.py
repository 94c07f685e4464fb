"""Checks that a host is reachable before a command connects, since clients would retry for ever."""

import socket
import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from ...ports.errors import BarnabasError, ConfigError
from ...ports.transport import Address
from ..config.listeners import parse_address

REACH_S = 2.0
"""Timeout for a connection to one of the brokers."""
_AGAIN_S = 0.1
_SCHEME = "kafka://"


class _Attempt(NamedTuple):
    """An attempt to connect; `problem` None: the address accepts connections."""

    address: Address
    problem: str | None = None
    is_last: bool = True


def check_reachable(bootstrap: str) -> None:
    """Raise `BarnabasError` if none of HOST:PORT[,...] accepts a connection, with the problem of each."""
    addresses = [_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
    if not addresses:
        raise ConfigError("--bootstrap is empty: give HOST:PORT of at least one broker")
    until = time.monotonic() + REACH_S
    attempts: SimpleQueue[_Attempt] = SimpleQueue()
    for address in addresses:  # no pool: the end of the process would wait for a name server
        Thread(target=_reach, args=(address, until, attempts), daemon=True).start()
    problems = dict.fromkeys(addresses, "no answer")
    remaining = len(addresses)
    try:
        while remaining:
            attempt = attempts.get(timeout=max(0.0, until + _AGAIN_S - time.monotonic()))
            if attempt.problem is None:
                return
            problems[attempt.address] = attempt.problem
            remaining -= attempt.is_last
    except Empty:
        pass  # the last problem of each address is known by now
    text = "; ".join(f"{host}:{port}: {problem}" for (host, port), problem in problems.items())
    raise BarnabasError(f"no broker there: {text}; start one (barnabas serve), or correct the address")


def _address(text: str) -> Address:
    return parse_address(text.removeprefix(_SCHEME), f"--bootstrap {text!r}")


def _reach(address: Address, until: float, attempts: "SimpleQueue[_Attempt]") -> None:
    """Try to connect, again and again while the connection is refused: the broker may be starting."""
    while True:
        try:
            socket.create_connection(address, timeout=max(0.05, until - time.monotonic())).close()
        except socket.gaierror as error:
            attempts.put(_Attempt(address, f"no such host ({error.strerror})"))
            return
        except TimeoutError:
            attempts.put(_Attempt(address, "no answer"))
            return
        except OSError as error:
            is_last = time.monotonic() + _AGAIN_S >= until
            attempts.put(_Attempt(address, error.strerror or str(error), is_last))
            if is_last:
                return
            time.sleep(_AGAIN_S)
        else:
            attempts.put(_Attempt(address))
            return
