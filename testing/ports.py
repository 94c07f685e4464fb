"""Ports that outlive the broker that listens on them."""

from contextlib import ExitStack

from ..app.reserve_port import KEEPS, reserve_port


def reserved(listener: str, keep: ExitStack) -> str:
    """Return the listener with a port that stays ours while the broker is stopped, where the system can do that."""
    scheme, _, address = listener.partition("://")
    host, _, port = address.rpartition(":")
    if port != "0" or not KEEPS or ":" in host:
        return listener
    try:
        return f"{scheme}://{host}:{reserve_port(host, keep)}"
    except OSError:
        return listener  # the broker says why
