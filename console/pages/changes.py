"""The changes that users made with this console, the newest first."""

from starlette.responses import Response

from ..application import PageCall, PageRoute


def show(call: PageCall) -> Response:
    """Show the changes since the console started."""
    return call.page("changes.html.j2", changes=list(call.console.changes))


PAGES = (PageRoute("/changes", show),)
