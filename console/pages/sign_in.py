"""Signing in with the user's own SASL credentials, and signing out."""

from __future__ import annotations

import logging
import time

from starlette.responses import RedirectResponse, Response

from ... import AuthenticationError, BarnabasError
from ..application import MECHANISMS, PageCall, PageRoute

logger = logging.getLogger("barnabas.console")

_PAUSE_S = 0.5
"""The time that a refusal takes at least."""


def _next_of(given: str) -> str:
    """Return a path of the console to continue at."""
    return given if given.startswith("/") and not given.startswith(("//", "/\\", "/sign-")) else "/"


def ask(call: PageCall) -> Response:
    """Show the form."""
    if not call.settings.needs_sign_in:
        return call.redirect("/")
    return call.page(
        "sign_in.html.j2",
        given={"user": "", "mechanism": call.settings.mechanism, "next": _next_of(call.query("next", "/"))},
        problem="",
        mechanisms=MECHANISMS,
    )


def sign_in(call: PageCall) -> Response:
    """Connect as the user; the cluster decides whether the password is right."""
    given = {
        "user": call.form.get("user", "").strip(),
        "mechanism": call.form.get("mechanism", call.settings.mechanism),
        "next": _next_of(call.form.get("next", "/")),
    }
    if given["mechanism"] not in MECHANISMS or not call.settings.needs_sign_in:
        given["mechanism"] = call.settings.mechanism
    try:
        made = call.console.sign_in(call.session, given["user"], call.form.get("password", ""), given["mechanism"])
    except AuthenticationError:
        time.sleep(_PAUSE_S)
        logger.warning("user %r was refused", given["user"][:100])
        return call.page("sign_in.html.j2", 401, given=given, problem="The cluster does not know this user with this "
                         "password and mechanism.", mechanisms=MECHANISMS)  # fmt: skip
    except BarnabasError as error:
        return call.page("sign_in.html.j2", 503, given=given, problem=str(error), mechanisms=MECHANISMS)
    logger.info("user %s signed in", given["user"])
    call.session = made
    return RedirectResponse(given["next"], 303)


def sign_out(call: PageCall) -> Response:
    """End the session and its connections."""
    call.session = call.console.sign_out(call.session)
    return RedirectResponse("/sign-in", 303)


PAGES = (
    PageRoute("/sign-in", ask),
    PageRoute("/sign-in", sign_in, ("POST",)),
    PageRoute("/sign-out", sign_out, ("POST",)),
)
