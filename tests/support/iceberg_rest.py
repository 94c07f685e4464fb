"""A small REST catalog of Iceberg over pyiceberg's SQL one: what a load and its readers need of the protocol."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import CommitTableRequest, Table


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Yield the URI of a catalog."""
    behind = SqlCatalog("behind", uri=f"sqlite:///{folder}/rest.db", warehouse=str(folder))

    class Handler(_Handler):
        catalog = behind

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        behind.close()


class _Handler(BaseHTTPRequestHandler):
    catalog: SqlCatalog

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self._answer(200, '{"defaults": {}, "overrides": {}}')
        else:
            self._guarded(lambda: _shown(self.catalog.load_table(self._table())))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._guarded(lambda: self._post(body))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet."""

    def _post(self, body: bytes) -> str:
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[1:] == ["namespaces"]:
            self.catalog.create_namespace("shared")
            return "{}"
        if parts[-1] == "tables":
            wanted = CreateTableRequest.model_validate_json(body)
            made = self.catalog.create_table(
                ("shared", wanted.name), wanted.table_schema, wanted.location, properties=wanted.properties
            )
            return _shown(made)
        asked = CommitTableRequest.model_validate_json(body)
        table = self.catalog.load_table(self._table())
        done = self.catalog.commit_table(table, asked.requirements, asked.updates)
        return done.model_dump_json(by_alias=True)

    def _table(self) -> tuple[str, str]:
        return "shared", self.path.split("?")[0].rpartition("/")[2]

    def _guarded(self, act: Any) -> None:
        try:
            self._answer(200, act())
        except NoSuchTableError as error:
            self._refuse(404, error)
        except (NamespaceAlreadyExistsError, CommitFailedException) as error:
            self._refuse(409, error)

    def _refuse(self, code: int, error: Exception) -> None:
        kind = type(error).__name__
        self._answer(code, f'{{"error": {{"message": "no", "type": "{kind}", "code": {code}}}}}')

    def _answer(self, code: int, body: str) -> None:
        data = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _shown(table: Table) -> str:
    metadata = table.metadata.model_dump_json(by_alias=True)
    return f'{{"metadata-location": "{table.metadata_location}", "metadata": {metadata}, "config": {{}}}}'
