"""Ports that outlive the broker that listens on them."""

import socket
import sys
from contextlib import ExitStack


def reserved(listener: str, keep: ExitStack) -> str:
    """The listener with a port that stays ours while the broker is stopped, where the system can do that.

    A bound socket that does not listen keeps its port from everybody but those who set SO_REUSEADDR as well; Linux then
    lets one of them listen there.
    """
    scheme, _, address = listener.partition("://")
    host, _, port = address.rpartition(":")
    if port != "0" or not sys.platform.startswith("linux") or ":" in host:
        return listener
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
    except OSError:
        holder.close()
        return listener
    keep.callback(holder.close)
    return f"{scheme}://{host}:{holder.getsockname()[1]}"
