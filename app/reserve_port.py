"""A port that outlives its listeners."""

import socket
import sys
from contextlib import ExitStack

KEEPS = sys.platform.startswith("linux")
"""True if the system can keep a port; elsewhere it is only free when it is given out."""


def reserve_port(host: str, keep: ExitStack) -> int:
    """Return a free port of `host` that stays ours until `keep` is closed, before and between those who listen there.

    A bound socket that does not listen keeps its port from everybody but those who set SO_REUSEADDR as well; Linux then
    lets one of them listen there. Raises `OSError`.
    """
    with ExitStack() as on_failure:
        holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        on_failure.callback(holder.close)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        port: int = holder.getsockname()[1]
        if KEEPS:
            keep.enter_context(on_failure.pop_all())
    return port
