"""Extension points: hook specifications, the plugin host, and the built-in plugins."""

from .specs import hookimpl

__all__ = ["hookimpl"]
