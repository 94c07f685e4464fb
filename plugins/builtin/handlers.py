"""The built-in handlers: those that change nothing."""

from ...core.client.producer.handlers import CallbackHandler, EventHandler

HANDLER_NAMES = ("default",)


def builtin_event_handler(name: str) -> EventHandler | None:
    """Return the event handler of that name, or None."""
    return EventHandler() if name == "default" else None


def builtin_callback_handler(name: str) -> CallbackHandler | None:
    """Return the callback handler of that name, or None."""
    return CallbackHandler() if name == "default" else None
