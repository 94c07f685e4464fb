"""A host that is not there is named at once: a person waits, and clients would go on trying."""

import socket
import time
from queue import Empty, SimpleQueue
from threading import Thread

from ...ports.errors import BarnabasError, ConfigError
from ...ports.transport import Address
from ..config.listeners import parse_address

REACH_S = 2.0
"""How long until one of the brokers must have taken a connection."""
_AGAIN_S = 0.1
_SCHEME = "kafka://"


def check_reachable(bootstrap: str) -> None:
    """Raises `BarnabasError` when none of HOST:PORT[,...] takes a connection: what was wrong with each."""
    addresses = [_address(text.strip()) for text in bootstrap.split(",") if text.strip()]
    if not addresses:
        raise ConfigError("--bootstrap is empty: give HOST:PORT of at least one broker")
    until = time.monotonic() + REACH_S
    answers: SimpleQueue[tuple[Address, str | None]] = SimpleQueue()
    for address in addresses:  # not a pool's: the end of the process would wait for a name server
        Thread(target=_reach, args=(address, until, answers), daemon=True).start()
    wrong = dict.fromkeys(addresses, "no answer")
    try:
        for _ in addresses:
            address, fault = answers.get(timeout=max(0.0, until + _AGAIN_S - time.monotonic()))
            if fault is None:
                return
            wrong[address] = fault
    except Empty:
        pass  # what is wrong with the others is known by now
    raise BarnabasError("no broker there: " + "; ".join(f"{host}:{port}: {why}" for (host, port), why in wrong.items()))


def _address(text: str) -> Address:
    return parse_address(text.removeprefix(_SCHEME), f"--bootstrap {text!r}")


def _reach(address: Address, until: float, answers: "SimpleQueue[tuple[Address, str | None]]") -> None:
    """Tell what is wrong, or None if it takes connections. One that refuses may just be starting."""
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
