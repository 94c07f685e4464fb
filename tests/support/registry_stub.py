"""A registry in the test's own process: what clients ask for, and faults on request. It checks nothing."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from attrs import Factory, define


@define
class RegistryStub:
    url: str = ""
    schemas: list[dict[str, Any]] = Factory(list)
    subjects: dict[str, list[int]] = Factory(dict)
    asked: "Counter[str]" = Factory(Counter)
    fails: int = 0
    """The number of requests that are answered with 503."""
    needs: str = ""
    """The header `Authorization` that is asked for."""

    def put(self, subject: str, text: str, kind: str = "AVRO", references: list[Any] | None = None) -> int:
        entry = {"schema": text, "schemaType": kind, "references": references or []}
        if entry not in self.schemas:
            self.schemas.append(entry)
        schema_id = self.schemas.index(entry) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        kind, references = body.get("schemaType", "AVRO"), body.get("references") or []
        match [method, *parts]:
            case ["GET", "schemas", "ids", number] if int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case ["GET", "schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["GET", "subjects", subject, "versions", version] if subject in self.subjects:
                ids = self.subjects[subject]
                place = len(ids) if version == "latest" else int(version)
                return 200, {
                    **self.schemas[ids[place - 1] - 1],
                    "id": ids[place - 1],
                    "subject": subject,
                    "version": place,
                }
            case ["POST", "subjects", subject, "versions"]:
                return 200, {"id": self.put(subject, body["schema"], kind, references)}
            case ["POST", "subjects", subject] if subject in self.subjects:
                entry = {"schema": body["schema"], "schemaType": kind, "references": references}
                ids = self.subjects[subject]
                if entry in self.schemas and self.schemas.index(entry) + 1 in ids:
                    schema_id = self.schemas.index(entry) + 1
                    return 200, {**entry, "id": schema_id, "subject": subject, "version": ids.index(schema_id) + 1}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 40401, "message": "Subject not found."}


@contextmanager
def registry_stub() -> Iterator[RegistryStub]:
    stub = RegistryStub()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else {}
            stub.asked[f"{self.command} {urlsplit(self.path).path}"] += 1
            if stub.fails:
                stub.fails -= 1
                status, answer = 503, {"error_code": 50003, "message": "not ready"}
            elif stub.needs and self.headers.get("Authorization") != stub.needs:
                status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, answer = stub.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
