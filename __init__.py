"""Barnabas: a complete distributed log in Python.

The names below are the stable face of the package. They are loaded on first use, so that `import barnabas` and the
commands that need few of them start quickly.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app.broker_handle import Broker
    from .app.clients.admin import Admin
    from .app.clients.consumer import Consumer
    from .app.clients.producer import Producer
    from .app.clients.simple_consumer import SimpleConsumer
    from .core.message.message import Message

__version__ = "0.1.0"

_HOMES = {
    "Admin": "app.clients.admin",
    "Broker": "app.broker_handle",
    "Consumer": "app.clients.consumer",
    "Message": "core.message.message",
    "Producer": "app.clients.producer",
    "SimpleConsumer": "app.clients.simple_consumer",
}

__all__ = ["Admin", "Broker", "Consumer", "Message", "Producer", "SimpleConsumer", "__version__"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
