"""Signing in with the user's own SASL credentials, a password or a token, and signing out."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from starlette.responses import RedirectResponse, Response

from ... import AuthenticationError, BarnabasError, ConfigError
from ..application import KERBEROS, MECHANISMS, TOKEN, PageCall, PageRoute

logger = logging.getLogger("barnabas.console")

_PAUSE_S = 0.5
"""The time that a refusal takes at least."""
_TOKEN_CHARS_MAX = 65_536


def _next_of(given: str) -> str:
    """Return a path of the console to continue at."""
    return given if given.startswith("/") and not given.startswith(("//", "/\\", "/sign-")) else "/"


def ask(call: PageCall) -> Response:
    """Show the form."""
    if not call.settings.needs_sign_in:
        return call.redirect("/")
    own = call.settings.mechanism
    mechanism = own if own in MECHANISMS else MECHANISMS[0]
    if call.query("with", "token" if own == TOKEN else "") == "token":
        mechanism = TOKEN
    return _form(call, {"user": "", "mechanism": mechanism, "next": _next_of(call.query("next", "/"))})


def _form(call: PageCall, given: Mapping[str, str], problem: str = "", status: int = 200) -> Response:
    return call.page(
        "sign_in.html.j2",
        status,
        given=given,
        problem=problem,
        mechanisms=MECHANISMS,
        wants_token=given["mechanism"] == TOKEN,
        has_kerberos=call.settings.mechanism == KERBEROS,
    )


def sign_in(call: PageCall) -> Response:
    """Connect as the user; the cluster decides whether the password or the token is right."""
    if not call.settings.needs_sign_in:
        return call.redirect("/")
    mechanism = call.form.get("mechanism", call.settings.mechanism)
    given = {
        "user": call.form.get("user", "").strip(),
        "mechanism": mechanism if mechanism in (*MECHANISMS, TOKEN) else MECHANISMS[0],
        "next": _next_of(call.form.get("next", "/")),
    }
    password = call.form.get("password", "")
    if given["mechanism"] == TOKEN:
        password = "".join(password.split())  # a terminal breaks lines
        if not password.isascii() or not 0 < len(password) <= _TOKEN_CHARS_MAX:
            return _form(call, given, "That is no token.", 400)
    try:
        made = call.console.sign_in(call.session, given["user"], password, given["mechanism"])
    except AuthenticationError as error:
        time.sleep(_PAUSE_S)
        logger.warning("user %r was refused", given["user"][:100] or "of a token")
        problem = "The cluster does not know this user with this password and mechanism."
        if given["mechanism"] == TOKEN:
            problem = f"The cluster does not accept this token: {error}"
        return _form(call, given, problem, 401)
    except BarnabasError as error:
        return _form(call, given, str(error), 400 if isinstance(error, ConfigError) else 503)
    logger.info("user %s signed in", "" if made.connection is None else made.connection.user)
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
