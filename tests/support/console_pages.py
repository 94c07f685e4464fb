"""A web console in this process, and a browser without a screen for it."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from barnabas.console.application import COOKIE, Console, ConsoleSettings, make_app
from barnabas.console.server import PAGES

_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


class Browser:
    """Follows redirects, and sends forms as the page that has them would."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._client = TestClient(make_app(console, PAGES), base_url="http://127.0.0.1", raise_server_exceptions=False)

    @property
    def cookie(self) -> str:
        return str(self._client.cookies.get(COOKIE, ""))

    @cookie.setter
    def cookie(self, value: str) -> None:
        self._client.cookies.clear()
        self._client.cookies.set(COOKIE, value)

    def get(self, address: str, **more: Any) -> Any:
        return self._client.get(address, **more)

    def text(self, address: str) -> str:
        found = self.get(address)
        while found.status_code == 202:  # it is being read, and asks to be loaded again
            time.sleep(0.1)
            found = self.get(address)
        assert found.status_code == 200, (address, found.status_code, found.text)
        return str(found.text)

    def send(self, address: str, form: Mapping[str, str], *, page: str, **more: Any) -> Any:
        """Send a form of a page to an address, with the token of the page."""
        token = _TOKEN.search(self.text(page))
        assert token is not None, f"no form on {page}"
        return self._client.post(address, data={"csrf": token[1], **form}, **more)

    def post(self, address: str, form: Mapping[str, str], **more: Any) -> Any:
        """Send a form without a token."""
        return self._client.post(address, data=dict(form), **more)


@contextmanager
def console_of(bootstrap: str, **settings: Any) -> Iterator[Browser]:
    cluster = {"bootstrap.servers": bootstrap, **settings.pop("security", {})}
    console = Console(ConsoleSettings(cluster=cluster, **settings))
    try:
        yield Browser(console)
    finally:
        console.close()
