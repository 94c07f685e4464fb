"""Remote storage in S3 keeps the contract of remote storage, at moto's server."""

import hashlib
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("obstore")
if find_spec("moto") is None:
    pytest.skip("moto is not installed", allow_module_level=True)

from support.certificates import authority, certificate
from support.s3_server import KEYS, S3Server

from barnabas.adapters.remote_s3 import S3RemoteStorage, open_s3_remote_storage
from barnabas.ports.errors import ConfigError
from barnabas.ports.remote_storage import CHUNK_BYTES, RemoteStorage, RemoteStorageError
from barnabas.testing.contracts.remote_storage import RemoteStorageContract


class TestS3RemoteStorage(RemoteStorageContract):
    many_objects = 250

    @pytest.fixture
    def storage(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteStorage]:
        monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "100")  # how many objects it lists in one answer
        storage = open_s3_remote_storage(s3_server.make_bucket(), s3_server.settings)
        yield storage
        storage.close()


def test_secrets_are_in_no_text(s3_server: S3Server) -> None:
    storage = open_s3_remote_storage("s3://no-such-bucket/x", s3_server.settings)
    with pytest.raises(RemoteStorageError) as raised:
        storage.put("k", b"x")
    text = repr(storage) + str(storage) + str(raised.value) + repr(raised.value.__context__)
    assert "no-such-bucket" in text
    assert not any(key in text for key in KEYS)


@pytest.mark.parametrize("url", ["s3://", "s3://key:secret@bucket/x", "s3://a", "s3://bucket/x?secret=y", "http://x"])
def test_malformed_url_is_refused_without_its_text(url: str) -> None:
    with pytest.raises(ConfigError, match="s3://BUCKET/PREFIX") as raised:
        open_s3_remote_storage(url, {})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"secret": "hush-hush"}, "unknown settings"), ({"endpoint": "http://user:hush-hush@host"}, "endpoint")],
)
def test_wrong_setting_is_refused_without_its_value(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        S3RemoteStorage("bucket", "", settings)
    assert "hush" not in str(raised.value)


def test_unreachable_store_is_an_error_that_names_the_endpoint_to_check() -> None:
    settings = {"endpoint": "http://127.0.0.1:9", "access.key.id": KEYS[0], "secret.access.key": KEYS[1]}
    with pytest.raises(RemoteStorageError, match=r"cannot list s3://bucket.*; check the endpoint \(AWS_ENDPOINT"):
        list(open_s3_remote_storage("s3://bucket", settings).list_objects(""))


def test_missing_bucket_is_an_error_that_says_to_make_it(s3_server: S3Server) -> None:
    storage = open_s3_remote_storage("s3://no-such-bucket/x", s3_server.settings)
    with pytest.raises(RemoteStorageError, match=r"cannot list s3://no-such-bucket/x: .*; make the bucket, or correct"):
        list(storage.list_objects(""))


def test_half_of_the_keys_is_an_error_that_names_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(ConfigError, match="Missing SecretAccessKey; a key is missing: set AWS_ACCESS_KEY_ID and"):
        S3RemoteStorage("bucket", "", {"access.key.id": KEYS[0]})


def test_malformed_endpoint_of_the_environment_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "127.0.0.1:9")
    with pytest.raises(ConfigError, match="AWS_ENDPOINT is not of the form"):
        S3RemoteStorage("bucket", "", {})


class _Requests:
    """Notes how each PUT describes its payload, and how many of them are answered at the same time."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()

    @contextmanager
    def count(self, payload: str) -> Iterator[None]:
        with self._lock:
            self.payloads.append(payload)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        yield
        with self._lock:
            self._now -= 1


def _handler(requests: _Requests) -> type[BaseHTTPRequestHandler]:
    """Return a handler of single and of multipart uploads."""

    class Uploads(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            with requests.count(self.headers["x-amz-content-sha256"]):
                self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(0.05 if "partNumber" in self.path else 0)
                self._answer(b"")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(b'<?xml version="1.0"?><R><UploadId>1</UploadId><ETag>"1"</ETag></R>')

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Write nothing to standard error."""

    return Uploads


@contextmanager
def _server(requests: _Requests, tls: ssl.SSLContext | None = None) -> Iterator[RemoteStorage]:
    """Run a server; yield storage in a bucket there."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(requests)) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
            keys = {"access.key.id": KEYS[0], "secret.access.key": KEYS[1]}
            yield open_s3_remote_storage("s3://bucket/x", {"endpoint": endpoint, **keys})
        finally:
            server.shutdown()
            thread.join()


def test_payload_is_hashed_for_the_signature_without_tls() -> None:
    requests = _Requests()
    with _server(requests) as storage:
        storage.put("k", b"content")
    assert requests.payloads == [hashlib.sha256(b"content").hexdigest()]


def test_payload_that_tls_protects_is_not_hashed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate("127.0.0.1").configure_cert(tls)
    authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    requests = _Requests()
    with _server(requests, tls) as storage:
        storage.put("k", b"content")
    assert requests.payloads == ["UNSIGNED-PAYLOAD"]


def test_large_object_has_few_parts_in_memory_at_a_time() -> None:
    requests = _Requests()
    with _server(requests) as storage:
        storage.put("k", bytes(5 * CHUNK_BYTES))
    assert len(requests.payloads) == 5
    assert requests.most_at_once <= 2
