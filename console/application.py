"""The application of the console: its routes, what protects them, and what a page gets of a request."""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import time
from base64 import urlsafe_b64decode
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_urlsafe
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import ApiError, AuthenticationError, BarnabasError, ClientTimeout, ConfigError, ErrorCode, TransportError
from ..app.tiers import Stored, read_store
from ..ports.values import frozen
from ..schemas.client import RegistryClient, RegistryRefused, RegistryUnreachable
from .connection import SnapshotThread, StillReading, UserConnection
from .decoding import Decoders
from .rendering import ENVIRONMENT, make_environment
from .tables import table_snapshot

logger = logging.getLogger("barnabas.console")

COOKIE = "barnabas_console"
BODY_BYTES_MAX = 4 * 1024 * 1024
SESSIONS_MAX = 1000
SESSION_IDLE_S = 8 * 3600.0
CHANGES_MAX = 1000
CHANGE_CHARS_MAX = 2000
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
"""The mechanisms of SASL with a user name and a password."""
TOKEN = "OAUTHBEARER"
"""The mechanism of SASL with a token of an identity provider."""
KERBEROS = "GSSAPI"
_CREDENTIALS = (
    "sasl.username",
    "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.kerberos.service.name",
)
REGISTRY_S = 4.0
_AGAIN_S = 5
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_SAFE_METHODS = ("GET", "HEAD")
_STATIC = Path(__file__).parent / "static"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}


@frozen(kw_only=True)
class ConsoleSettings:
    """The settings of a console. `cluster`: the settings of its clients, with `bootstrap.servers`."""

    cluster: Mapping[str, Any]
    read_only: bool = False
    host_names: Collection[str] = ()
    """Names, other than those of this machine, under which browsers may reach it."""
    registry: str = ""
    registry_settings: Mapping[str, Any] = {}
    warehouse: str = ""
    remote_storage: str = ""
    """The URL of the remote storage of the brokers."""

    @property
    def bootstrap(self) -> str:
        return str(self.cluster["bootstrap.servers"])

    @property
    def needs_sign_in(self) -> bool:
        """Return True if the cluster has users, and the settings name none: each browser signs in."""
        protocol = str(self.cluster.get("security.protocol", "")).upper()
        return protocol.startswith("SASL_") and not any(self.cluster.get(key) for key in _CREDENTIALS)

    @property
    def mechanism(self) -> str:
        """The mechanism of SASL of the settings; without one, the first that the form offers."""
        return str(self.cluster.get("sasl.mechanism") or MECHANISMS[0]).upper()

    @property
    def name_claim(self) -> str:
        """The claim of a token that has the name of its user."""
        return str(self.cluster.get("sasl.oauthbearer.sub.claim.name") or "sub")

    @property
    def user(self) -> str:
        """The name under which changes are logged where no user signs in."""
        return str(self.cluster.get("sasl.username") or "anonymous")


@frozen(kw_only=True)
class Change:
    """One change that a user made, or tried to make."""

    time_ms: int
    user: str
    what: str
    error: str


class Session:
    """One browser, in memory only."""

    def __init__(self) -> None:
        self.id = token_urlsafe(32)
        self.csrf = token_urlsafe(32)
        self.notices: deque[tuple[str, str]] = deque(maxlen=8)
        """Kinds ("good", "bad") and texts that the next page shows."""
        self.used = time.monotonic()
        self.connection: UserConnection | None = None
        """The connection of the user who has signed in."""

    @property
    def is_expired(self) -> bool:
        return self.used + SESSION_IDLE_S < time.monotonic()


class SignInNeeded(Exception):
    """The page needs a user who has signed in."""


class Console:
    """The things that pages have in common: the settings, the sessions, the connection, the log of changes."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        self.is_closing = False
        """True: live tails end."""
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = Lock()
        self._connection: UserConnection | None = None
        self._registry: RegistryClient | None = None
        self._decoders: Decoders | None = None
        self._tables: SnapshotThread | None = None
        self._store: SnapshotThread | None = None

    @property
    def registry(self) -> RegistryClient | None:
        """Return the client of the schema registry; None: there is none. Raises `ConfigError`."""
        if not self.settings.registry:
            return None
        with self._lock:
            if self._registry is None:
                from ..schemas.access import access_of

                access = access_of(self.settings.registry_settings, self.settings.registry)
                self._registry = RegistryClient(access, timeout_s=REGISTRY_S, tries=1)
            return self._registry

    @property
    def tables(self) -> SnapshotThread | None:
        """Return the snapshots of the tables of the warehouse; None: there is none."""
        if not self.settings.warehouse:
            return None
        with self._lock:
            if self._tables is None:
                self._tables = SnapshotThread("tables", lambda _: table_snapshot(self.settings.warehouse))
            return self._tables

    @property
    def store(self) -> SnapshotThread | None:
        """Return the snapshots of what is in the remote storage, a `Stored` each; None: the console knows none."""
        if not self.settings.remote_storage:
            return None
        with self._lock:
            if self._store is None:
                self._store = SnapshotThread("store", lambda _: read_store(self.settings.remote_storage))
            return self._store

    @property
    def decoders(self) -> Decoders:
        """Return what decodes messages. Raises `ConfigError`."""
        registry = self.registry
        with self._lock:
            if self._decoders is None:
                self._decoders = Decoders(registry)
            return self._decoders

    @property
    def connection(self) -> UserConnection:
        """Return the connection with the settings of the console. Raises `BarnabasError`."""
        with self._lock:
            if self._connection is None:
                self._connection = UserConnection(self.settings.cluster, self.settings.user, self._stored)
            return self._connection

    def _stored(self) -> Stored | None:
        """Return what the remote storage has, as far as that is known."""
        watched = self.store
        if watched is None:
            return None
        try:
            found: Stored = watched.current()
        except BarnabasError:
            return None
        return found

    def session(self, given: str) -> Session | None:
        """Return the session with this id, unless it is too old."""
        with self._lock:
            found = self._sessions.get(given)
            if found is None or found.is_expired:
                return None
            found.used = time.monotonic()
            self._sessions.move_to_end(given)
            return found

    def new_session(self) -> Session:
        """Return a new session. Expired ones end, and where there are too many, those that were used least recently."""
        made, ended = Session(), []
        with self._lock:
            self._sessions[made.id] = made
            while len(self._sessions) > SESSIONS_MAX or next(iter(self._sessions.values())).is_expired:
                ended.append(self._sessions.popitem(last=False)[1])
        for each in ended:
            _end(each)
        return made

    def sign_in(self, session: Session, user: str, password: str, mechanism: str) -> Session:
        """Connect as a user with a password, or as the user of a token, given as `password`; return a new session, in
        place of the given one. Raises `BarnabasError`, of which `AuthenticationError` means that the cluster refuses
        the user."""
        own: dict[str, Any] = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        expires_s = None
        if mechanism == TOKEN:
            own = {"sasl.mechanism": mechanism, "sasl.oauth.token.provider": lambda: password}
            user, expires_s = claims_of(password, self.settings.name_claim)
            if expires_s is not None and expires_s <= time.time():
                raise ConfigError("The token has expired. Get a new one.")  # brokers allow for clocks that differ
        connection = UserConnection({**self.settings.cluster, **own}, user, self._stored, expires_s)
        try:
            connection.admin.describe_cluster()
        except BaseException:
            connection.close()
            raise
        made = self.sign_out(session)
        made.connection = connection
        return made

    def sign_out(self, session: Session) -> Session:
        """End a session, and return a new one."""
        with self._lock:
            self._sessions.pop(session.id, None)
        _end(session)
        return self.new_session()

    def close(self) -> None:
        """Close the connections. Twice is harmless."""
        with self._lock:
            sessions = list(self._sessions.values())
            for thread in (self._tables, self._store):
                if thread is not None:
                    thread.close()
            if self._connection is not None:
                self._connection.close()
        for each in sessions:
            _end(each)


def claims_of(token: str, name_claim: str) -> tuple[str, float | None]:
    """Return the user of a token, and the time of its end in seconds since 1970, as it says: the brokers check it."""
    claims: Any = None
    parts = token.split(".")
    with suppress(ValueError):
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))) if len(parts) == 3 else None
    if not isinstance(claims, dict):
        return "the user of a token", None
    expires_s = claims.get("exp")
    return str(claims.get(name_claim) or "the user of a token"), expires_s if isinstance(expires_s, int) else None


def _end(session: Session) -> None:
    if session.connection is not None:
        session.connection.close()
        session.connection = None


class PageCall:
    """One request of a signed-in browser, and the ways to answer it."""

    def __init__(self, request: Request, console: Console, session: Session, form: Mapping[str, str]) -> None:
        self.request = request
        self.console = console
        self.session = session
        self.form = form

    @property
    def connection(self) -> UserConnection:
        """Return the connection with the rights of the user. Raises `BarnabasError`, `SignInNeeded`."""
        if not self.settings.needs_sign_in:
            return self.console.connection
        if self.session.connection is None:
            raise SignInNeeded
        if self.session.connection.is_expired:
            raise SignInNeeded(f"The token of {self.session.connection.user} has expired. Sign in with a new one.")
        return self.session.connection

    @property
    def user(self) -> str:
        """Return the name of the user; empty where none has signed in yet."""
        return _user_of(self.console, self.session)

    @property
    def settings(self) -> ConsoleSettings:
        return self.console.settings

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int = 0, *, least: int = 0) -> int:
        """Return a whole number of the query; the default for one that is none."""
        given = self.query(name)
        return max(least, int(given)) if given.isascii() and given.isdigit() and len(given) < 19 else default

    def url(self, **changed: Any) -> str:
        """Return the address of this page with other parameters; None removes one."""
        query = {name: value for name, value in self.request.query_params.items() if name not in changed}
        query |= {name: str(value) for name, value in changed.items() if value is not None}
        path = self.request.url.path
        return f"{path}?{urlencode(query)}" if query else path

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page in the frame."""
        html = render(self.request, self.session, self.console, template, call=self, status=status, **values)
        return _page_of(html, status)

    def redirect(self, address: str, notice: str = "") -> Response:
        """Send the browser to another page of the console, which shows the notice."""
        if notice:
            self.session.notices.append(("good", notice))
        return RedirectResponse(address, 303)

    @contextmanager
    def change(self, what: str) -> Iterator[None]:
        """Log a change of the cluster, that its block makes, with the user and the error, if any.

        Raises `HTTPException` in a console that may only read.
        """
        if self.settings.read_only:
            raise HTTPException(403, "This console is read-only: it was started with --read-only.")
        error, what = "", _line(what)
        try:
            yield
        except Exception as failure:
            error = _line(str(failure)) or type(failure).__name__
            raise
        finally:
            user = self.connection.user
            self.console.changes.appendleft(
                Change(time_ms=time.time_ns() // 1_000_000, user=user, what=what, error=error)
            )
            logger.info("user %s: %s: %s", user, what, error or "done")


def _line(text: str) -> str:
    """Return a text as one line of a log: names come from users and from the cluster."""
    return "".join(each if each.isprintable() else " " for each in text[:CHANGE_CHARS_MAX])


Handle = Callable[[PageCall], Response]


@frozen
class PageRoute:
    """A route of a page module. `handle` runs on a thread, and may wait for the cluster."""

    path: str
    handle: Handle
    methods: Sequence[str] = ("GET",)


def render(request: Request, session: Session | None, console: Console, template: str, **values: Any) -> str:
    """Return the HTML of a template within the frame."""
    notices = []
    while session is not None and session.notices:
        notices.append(session.notices.popleft())
    theme = request.cookies.get("theme", "")
    html: str = ENVIRONMENT.get_template(template).render(
        settings=console.settings,
        path=request.url.path,
        csrf="" if session is None else session.csrf,
        notices=notices,
        theme=theme if theme in ("dark", "light") else "",
        zone=request.cookies.get("zone", ""),
        user=_user_of(console, session),
        now_ms=time.time_ns() // 1_000_000,
        **{"call": None, **values},
    )
    return html


def _user_of(console: Console, session: Session | None) -> str:
    if not console.settings.needs_sign_in:
        return console.settings.user
    return "" if session is None or session.connection is None else session.connection.user


def make_app(console: Console, pages: Sequence[PageRoute]) -> ASGIApp:
    """Return the application of the console."""
    make_environment()
    by_path: dict[str, dict[str, Handle]] = {}
    for page in pages:
        for method in page.methods:
            by_path.setdefault(page.path, {})[method] = page.handle
    routes: list[Route | Mount] = [
        Route(path, _endpoint(console, handles), methods=sorted(handles)) for path, handles in by_path.items()
    ]
    routes.append(Mount("/static", StaticFiles(directory=_STATIC)))
    routes.append(Route("/favicon.ico", _icon))

    async def http_failure(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = str(error.detail) if isinstance(error, HTTPException) else ""
        return _error_page(request, console, status, detail)

    async def failure(request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path[:200], exc_info=error)
        return _error_page(request, console, 500, "")

    app = Starlette(routes=routes, exception_handlers={HTTPException: http_failure, Exception: failure})
    return _Protected(app, console.settings.host_names)


async def _icon(_request: Request) -> Response:
    """Answer browsers, which ask for it where a page names no icon: reports do not."""
    return RedirectResponse("/static/icon.svg", 308)


def _endpoint(console: Console, handles: Mapping[str, Handle]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        handle = handles["GET" if request.method == "HEAD" else request.method]
        known = console.session(request.cookies.get(COOKIE, ""))
        if known is None and request.headers.get("sec-fetch-site") == "cross-site":
            # The cookie does not come with a link on another site; from this page it does.
            html = ENVIRONMENT.get_template("arrive.html.j2").render(
                address=str(request.url.path), query=request.url.query
            )
            return HTMLResponse(html)
        session = known or console.new_session()
        try:
            form: Mapping[str, str] = {}
            if request.method not in _SAFE_METHODS:
                form = dict(parse_qsl((await _body(request)).decode("utf-8", "replace"), keep_blank_values=True))
                _check_origin(request, session, form)
            call = PageCall(request, console, session, form)
            try:
                response = await run_in_threadpool(handle, call)
            except BarnabasError as error:
                if isinstance(error, AuthenticationError) and session.connection is not None:
                    session.notices.append(("bad", f"The cluster has ended your session: {error}"))
                    response = _to_sign_in(request)
                else:
                    response = await run_in_threadpool(_cluster_error_page, call, error)
            except SignInNeeded as needed:
                if str(needed):
                    session.notices.append(("bad", str(needed)))
                response = _to_sign_in(request)
            session = call.session
        except ClientDisconnect:
            return Response(status_code=400)
        except HTTPException as error:
            response = _error_page(request, console, error.status_code, str(error.detail), session)
        if session is not known:
            secure = request.url.scheme == "https"
            response.set_cookie(COOKIE, session.id, httponly=True, samesite="strict", secure=secure)
        return response

    return endpoint


def _to_sign_in(request: Request) -> Response:
    """Send the browser to the form; it returns to this page, unless that was part of one, or a change."""
    if "hx-request" in request.headers:
        return Response(headers={"hx-redirect": "/sign-in"})
    if request.url.path.endswith("/live"):
        return Response(status_code=401)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/sign-in?next={quote(here if request.method in _SAFE_METHODS else '/', safe='')}", 303)


async def _body(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise HTTPException(413, f"The form is larger than {BODY_BYTES_MAX // 1024 // 1024} MiB.")
        pieces.append(piece)
    return b"".join(pieces)


def _check_origin(request: Request, session: Session, form: Mapping[str, str]) -> None:
    """Raise `HTTPException` for a form of another site, or without the token of the session."""
    given = form.get("csrf") or request.headers.get("x-csrf-token", "")
    origin = request.headers.get("origin")
    is_other = origin is not None and urlsplit(origin).netloc != request.headers.get("host", "")
    is_other = is_other or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    if is_other or not hmac.compare_digest(given.encode(), session.csrf.encode()):
        raise HTTPException(403, "The form has expired. Go back, load the page again, and repeat what you did.")


_ADVICE: Mapping[ErrorCode, tuple[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, "It may have been deleted, or you may not describe it."),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, "The group does not exist, or has no members and offsets any longer."),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (404, "It has expired, or was never used."),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, "An ACL of the topic has to allow it."),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (403, "An ACL of the group has to allow it."),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (403, "An ACL of the cluster has to allow it."),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (403, "An ACL of the transactional id has to allow it."),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (403, "An ACL has to allow it."),
}


def _cluster_error_page(call: PageCall, error: BarnabasError) -> Response:
    """Return the page for an error of the cluster, or of what the user wrote."""
    if isinstance(error, StillReading):
        response = call.page("reading.html.j2", 202)
        response.headers["refresh"] = "1"
        return response
    status, advice = 502, ""
    if isinstance(error, ApiError):
        status, advice = _ADVICE.get(error.code, (400, ""))
    elif isinstance(error, ConfigError):
        status = 400
    elif isinstance(error, RegistryRefused):
        status = 404 if str(error.error_code).startswith("404") else 400
    elif isinstance(error, RegistryUnreachable):
        status = 503
    elif isinstance(error, TransportError | ClientTimeout):
        status, advice = 503, "The cluster does not answer. Try again when it does."
        if call.request.method in _SAFE_METHODS:
            advice = f"The cluster does not answer. This page tries again every {_AGAIN_S} seconds."
    response = call.page("error.html.j2", status, title=_TITLES.get(status, "Failed"), text=str(error),
                         advice=advice)  # fmt: skip
    if status == 503 and call.request.method in _SAFE_METHODS:
        response.headers["refresh"] = str(_AGAIN_S)
    return response


_TITLES = {
    400: "The cluster refused that",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed",
    413: "Too large",
    500: "The console failed",
    502: "The cluster answered with an error",
    503: "No answer",
}


def _error_page(
    request: Request, console: Console, status: int, detail: str, session: Session | None = None
) -> Response:
    advice = "The log of the console says more." if status == 500 else ""
    text = detail if detail != "Not Found" else "There is no such page."
    html = render(request, session, console, "error.html.j2", status=status, title=_TITLES.get(status, "Failed"),
                  text=text, advice=advice)  # fmt: skip
    return _page_of(html, status)


def _page_of(html: str, status: int) -> Response:
    return HTMLResponse(html.encode("utf-8", "replace"), status)  # JSON may have lone surrogates


class _Protected:
    """Adds the headers of security to every answer, and refuses requests to names of other hosts (DNS rebinding)."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {*_LOCAL_NAMES, *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_static = scope["path"].startswith("/static/")

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {**_HEADERS, b"cache-control": b"max-age=3600" if is_static else b"no-store"}
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [(name, value) for name, value in own.items() if name not in given]
            await send(message)

        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        if not self._is_own(host):
            refused = Response(
                f"Unknown host {host[:200]!r}; allow it with --host-name.\n", 421, media_type="text/plain"
            )
            await refused(scope, receive, send_protected)
            return
        await self._app(scope, receive, send_protected)

    def _is_own(self, host: str) -> bool:
        name = host.lower()
        name = name.rpartition(":")[0] if ":" in name and not name.endswith("]") else name
        return name in self._names or _is_address(name.strip("[]"))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
