"""Remote storage in S3 keeps the contract of remote storage, at moto's server."""

import base64
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
from barnabas.ports.types import Buffer
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
    [
        ({"secret": "hush-hush"}, "unknown settings"),
        ({"endpoint": "http://user:hush-hush@host"}, "endpoint"),
        ({"payload.checksum": "md5"}, "expected one of sha256, crc64nvme, none"),
    ],
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

    def __init__(self, *, is_damaging: bool = False) -> None:
        self.payloads: list[str] = []
        self.checksums: list[str | None] = []
        self.is_damaging = is_damaging
        """Whether a byte of each payload changes on its way."""
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


def _crc64_nvme(content: Buffer) -> str:
    """Return the checksum as S3 writes it: the reflected polynomial of NVM Express, all ones before and after."""
    crc = 0xFFFF_FFFF_FFFF_FFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x9A6C_9329_AC4B_C9B5 if crc & 1 else 0)
    return base64.b64encode((crc ^ 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big")).decode()


def _handler(requests: _Requests) -> type[BaseHTTPRequestHandler]:
    """Return a handler of single and of multipart uploads."""

    class Uploads(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            with requests.count(self.headers["x-amz-content-sha256"]):
                content = bytearray(self.rfile.read(int(self.headers["Content-Length"])))
                given = self.headers["x-amz-checksum-crc64nvme"]
                requests.checksums.append(given)
                content[0] ^= requests.is_damaging
                is_right = given is None or len(content) > 1000 or given == _crc64_nvme(content)
                time.sleep(0.05 if "partNumber" in self.path else 0)
                self._answer(b"" if is_right else b"<Error><Code>BadDigest</Code></Error>", 200 if is_right else 400)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(b'<?xml version="1.0"?><R><UploadId>1</UploadId><ETag>"1"</ETag></R>')

        def _answer(self, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Write nothing to standard error."""

    return Uploads


@contextmanager
def _server(requests: _Requests, tls: ssl.SSLContext | None = None, checksum: str = "") -> Iterator[RemoteStorage]:
    """Run a server; yield storage in a bucket there, with that `payload.checksum`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(requests)) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
            keys = {"access.key.id": KEYS[0], "secret.access.key": KEYS[1]}
            given = {"payload.checksum": checksum} if checksum else {}
            yield open_s3_remote_storage("s3://bucket/x", {"endpoint": endpoint, **keys, **given})
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ssl.SSLContext:
    """The side of a server whose certificate clients trust."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate("127.0.0.1").configure_cert(found)
    authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return found


def test_payload_is_hashed_for_the_signature_without_tls() -> None:
    requests = _Requests()
    with _server(requests) as storage:
        storage.put("k", b"content")
    assert requests.payloads == [hashlib.sha256(b"content").hexdigest()]
    assert requests.checksums == [None]


def test_payload_that_tls_protects_has_a_crc_in_place_of_a_hash(tls: ssl.SSLContext) -> None:
    requests = _Requests()
    with _server(requests, tls) as storage:
        storage.put("k", b"content")
        storage.replace("m", b"manifest", None)
    assert requests.payloads == ["UNSIGNED-PAYLOAD"] * 2
    assert requests.checksums == [_crc64_nvme(b"content"), _crc64_nvme(b"manifest")]


def test_crc_is_that_of_the_published_check_value() -> None:
    assert _crc64_nvme(b"123456789") == base64.b64encode(bytes.fromhex("ae8b14860a799888")).decode()


def test_each_part_of_a_large_object_has_its_crc() -> None:
    requests = _Requests()
    with _server(requests, checksum="crc64nvme") as storage:
        storage.put("k", bytes(CHUNK_BYTES) + b"the end")
    assert len(requests.checksums) == 2
    assert None not in requests.checksums
    assert _crc64_nvme(b"the end") in requests.checksums


@pytest.mark.parametrize("call", ["put", "replace"])
def test_payload_that_was_damaged_on_its_way_is_refused_by_the_store(call: str) -> None:
    with (
        _server(_Requests(is_damaging=True), checksum="crc64nvme") as storage,
        pytest.raises(RemoteStorageError, match=r"cannot store k in .*; the store received other bytes than were sent"),
    ):
        storage.put("k", b"content") if call == "put" else storage.replace("k", b"content", None)


@pytest.mark.parametrize(
    ("checksum", "payload"), [("none", "UNSIGNED-PAYLOAD"), ("sha256", hashlib.sha256(b"content").hexdigest())]
)
def test_store_that_knows_no_crc_gets_none(tls: ssl.SSLContext, checksum: str, payload: str) -> None:
    requests = _Requests()
    with _server(requests, tls, checksum) as storage:
        storage.put("k", b"content")
    assert (requests.payloads, requests.checksums) == ([payload], [None])


def test_payload_without_any_protection_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"payload\.checksum=none: without TLS"):
        S3RemoteStorage("bucket", "", {"endpoint": "http://127.0.0.1:9", "payload.checksum": "none"})


@pytest.mark.parametrize("checksum", ["crc64nvme", "sha256"])
def test_moto_keeps_what_comes_with_a_checksum(s3_server: S3Server, checksum: str) -> None:
    settings = {**s3_server.settings, "payload.checksum": checksum}
    storage = open_s3_remote_storage(s3_server.make_bucket(), settings)
    content = bytes(range(256)) * (CHUNK_BYTES // 256) + b"the end"
    storage.put("large", content)
    assert storage.read("large").content == content
    version = storage.replace("small", b"one", None)
    storage.replace("small", b"two", version)
    assert storage.read("small").content == b"two"


def test_large_object_has_few_parts_in_memory_at_a_time() -> None:
    requests = _Requests()
    with _server(requests) as storage:
        storage.put("k", bytes(5 * CHUNK_BYTES))
    assert len(requests.payloads) == 5
    assert requests.most_at_once <= 2
