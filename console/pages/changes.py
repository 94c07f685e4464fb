"""The changes that users made with this console, the newest first."""

from starlette.responses import Response

from ..application import PageCall, PageRoute


def show(call: PageCall) -> Response:
    """Show the changes since the console started; where users sign in, each sees their own."""
    own = call.connection.user if call.settings.needs_sign_in else None
    changes = [each for each in call.console.changes if own is None or each.user == own]
    return call.page("changes.html.j2", changes=changes)


PAGES = (PageRoute("/changes", show),)
