"""Checks that a host is reachable before a command connects, since clients would retry for ever."""

import socket
import time
from queue import Empty, SimpleQueue
from threading import Thread

from ...ports.errors import BarnabasError, ConfigError
from ...ports.transport import Address
from ..config.listeners import parse_address

REACH_S = 2.0
"""Timeout for a connection to one of the brokers."""
_AGAIN_S = 0.1
_SCHEME = "kafka://"


def check_reachable(bootstrap: str) -> None:
    """Raise `BarnabasError` if none of HOST:PORT[,...] accepts a connection, with the problem of each."""
    addresses = [_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
    if not addresses:
        raise ConfigError("--bootstrap is empty: give HOST:PORT of at least one broker")
    until = time.monotonic() + REACH_S
    answers: SimpleQueue[tuple[Address, str | None]] = SimpleQueue()
    for address in addresses:  # no pool: the end of the process would wait for a name server
        Thread(target=_reach, args=(address, until, answers), daemon=True).start()
    wrong = dict.fromkeys(addresses, "no answer")
    try:
        for _ in addresses:
            address, fault = answers.get(timeout=max(0.0, until + _AGAIN_S - time.monotonic()))
            if fault is None:
                return
            wrong[address] = fault
    except Empty:
        pass  # the problems of the others are known by now
    problems = "; ".join(f"{host}:{port}: {why}" for (host, port), why in wrong.items())
    raise BarnabasError(f"no broker there: {problems}; start one (barnabas serve), or correct the address")


def _address(text: str) -> Address:
    return parse_address(text.removeprefix(_SCHEME), f"--bootstrap {text!r}")


def _reach(address: Address, until: float, answers: "SimpleQueue[tuple[Address, str | None]]") -> None:
    """Put the problem of an address, or None if it accepts connections. One that refuses may be starting."""
    while True:
        try:
            socket.create_connection(address, timeout=max(0.05, until - time.monotonic())).close()
        except socket.gaierror as error:
            answers.put((address, f"no such host ({error.strerror})"))
            return
        except TimeoutError:
            answers.put((address, "no answer"))
            return
        except OSError as error:
            if time.monotonic() + _AGAIN_S >= until:
                answers.put((address, error.strerror or str(error)))
                return
            time.sleep(_AGAIN_S)
        else:
            answers.put((address, None))
            return
