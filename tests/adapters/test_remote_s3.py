"""Remote storage in S3 keeps the contract of remote storage, at moto's server."""

import hashlib
import ssl
import threading
from collections.abc import Iterator
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
from barnabas.ports.remote_storage import RemoteStorage, RemoteStorageError
from barnabas.testing.contracts.remote_storage import RemoteStorageContract


class TestS3RemoteStorage(RemoteStorageContract):
    @pytest.fixture
    def storage(self, s3_server: S3Server) -> Iterator[RemoteStorage]:
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


def test_malformed_endpoint_of_the_environment_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "127.0.0.1:9")
    with pytest.raises(ConfigError, match="AWS_ENDPOINT is not of the form"):
        S3RemoteStorage("bucket", "", {})


def _puts(seen: list[str]) -> type[BaseHTTPRequestHandler]:
    """Return a handler of PUT that notes how each request describes its payload."""

    class Puts(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.headers["x-amz-content-sha256"])
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Write nothing to standard error."""

    return Puts


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_payload_is_hashed_for_the_signature_only_without_tls(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _puts(seen)) as server:
        if scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate("127.0.0.1").configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            endpoint = f"{scheme}://127.0.0.1:{server.server_address[1]}"
            keys = {"access.key.id": KEYS[0], "secret.access.key": KEYS[1]}
            open_s3_remote_storage("s3://bucket/x", {"endpoint": endpoint, **keys}).put("k", b"content")
        finally:
            server.shutdown()
            thread.join()
    expected = {"https": "UNSIGNED-PAYLOAD", "http": hashlib.sha256(b"content").hexdigest()}
    assert seen == [expected[scheme]]
