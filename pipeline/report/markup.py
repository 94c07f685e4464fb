"""Text of pages, in which what is not markup is escaped."""

from ...app.extras import install_command

try:
    from markupsafe import Markup, escape
except ModuleNotFoundError as error:
    text = f"pages: {error.name} not installed; to get it: {install_command('spark')}"
    raise ImportError(text, name=__name__) from None

__all__ = ["Markup", "escape"]
