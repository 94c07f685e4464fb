"""Remote storage in an S3-compatible object store: `s3://BUCKET/PREFIX`, by obstore (the extra `s3`).

Conditional writes (`If-Match`, `If-None-Match`) make `replace` atomic.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from ..ports.errors import ConfigError
from ..ports.remote_storage import (
    CHUNK_BYTES,
    PAYLOAD_CHECKSUMS,
    ObjectChanged,
    ObjectInfo,
    ObjectMissing,
    RemoteStorageError,
    StoredObject,
    check_key,
    check_prefix,
    chunks_of,
)
from ..ports.storage import Region, size_of
from ..ports.types import Buffer

_FORM = re.compile(r"s3://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]{1,62})(?:/(?P<prefix>[^?#@]*))?")
_ENDPOINT = re.compile(r"(?P<scheme>https?)://[^\s/@?#]+/?")
_RETRIES, _RETRY_S, _TIMEOUT_S = 3, 20, 30
_PARTS_UNDER_WAY = 2
"""An upload holds these parts in memory; a broker has as many uploads at a time as copier threads."""
_BEYOND_END = ("416", "InvalidRange", "outside the object", "requested range")
SETTINGS = (
    "access.key.id",
    "endpoint",
    "payload.checksum",
    "region",
    "secret.access.key",
    "session.token",
    "virtual.hosted.style",
)
"""The settings; without keys, the environment (`AWS_ACCESS_KEY_ID`, ...) or the machine's role gives them."""


class S3RemoteStorage:
    """Remote storage in a bucket."""

    def __init__(self, bucket: str, prefix: str, settings: Mapping[str, str]) -> None:
        """Raises `ConfigError` for a setting that is unknown or malformed."""
        unknown = sorted({*settings} - {*SETTINGS})
        if unknown:
            raise ConfigError(f"unknown settings of the remote storage: {unknown}; known: {', '.join(SETTINGS)}")
        endpoint = settings.get("endpoint") or os.environ.get("AWS_ENDPOINT") or None
        form = _ENDPOINT.fullmatch(endpoint) if endpoint is not None else None
        if endpoint is not None and form is None:
            what = "rsm.config.endpoint" if settings.get("endpoint") else "AWS_ENDPOINT"
            raise ConfigError(f"{what} is not of the form http[s]://HOST[:PORT]")
        self._place = f"s3://{bucket}/{prefix}"
        options: dict[str, Any] = {"region": settings.get("region", "us-east-1")} if endpoint else {}
        if "region" in settings:
            options["region"] = settings["region"]
        for name, option in (
            ("access.key.id", "access_key_id"),
            ("secret.access.key", "secret_access_key"),
            ("session.token", "session_token"),
        ):
            if name in settings:
                options[option] = settings[name]
        if endpoint is not None:
            options["endpoint"] = endpoint.rstrip("/")
        options |= _payload_options(settings.get("payload.checksum"), is_tls=form is None or form["scheme"] == "https")
        options["virtual_hosted_style_request"] = settings.get("virtual.hosted.style", "false") == "true"
        try:
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                client_options={
                    "allow_http": form is not None and form["scheme"] == "http",
                    "timeout": timedelta(seconds=_TIMEOUT_S),
                },
                retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
                **options,
            )
        except (BaseError, ValueError) as error:
            said = _short(error)
            raise ConfigError(f"the remote storage {self._place} cannot be opened: {said}{_remedy(said)}") from None

    def __repr__(self) -> str:
        return f"S3RemoteStorage({self._place!r})"

    @contextmanager
    def _translated(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotFoundError):
            raise ObjectMissing(f"there is no object {key} in {self._place}") from None
        except (AlreadyExistsError, PreconditionError):
            raise ObjectChanged(f"the object {key} in {self._place} has changed") from None
        except (BaseError, OSError) as error:
            what = f"{what} {key} in" if key else what
            raise RemoteStorageError(f"cannot {what} {self._place}: {_short(error)}{_remedy(str(error))}") from None

    def put(self, key: str, content: Buffer | Region) -> None:
        check_key(key)
        with self._translated("store", key):
            if size_of(content) > CHUNK_BYTES:
                obstore.put(
                    self._store,
                    key,
                    chunks_of(content),
                    chunk_size=CHUNK_BYTES,
                    use_multipart=True,
                    max_concurrency=_PARTS_UNDER_WAY,
                )
            else:
                obstore.put(self._store, key, b"".join(chunks_of(content)), use_multipart=False)

    def replace(self, key: str, content: Buffer, version: str | None) -> str:
        check_key(key)
        with self._translated("store", key):
            mode: Any = "create" if version is None else {"e_tag": version}
            version = obstore.put(self._store, key, bytes(content), mode=mode, use_multipart=False)["e_tag"]
        if version is None:
            raise RemoteStorageError(f"{self._place} gives no ETag, without which it cannot keep the manifest")
        return version

    def read(self, key: str) -> StoredObject:
        check_key(key)
        with self._translated("read", key):
            found = obstore.get(self._store, key)
            version, content = found.meta["e_tag"], bytes(found.bytes())
        return StoredObject(content=content, version=version or "")

    def get_range(self, key: str, start: int, size: int) -> Buffer:
        if start < 0 or size < 0:
            raise ValueError(f"not a range: {start}, {size}")
        check_key(key)
        with self._translated("read", key):
            if not size:
                obstore.head(self._store, key)
                return b""
            try:
                return memoryview(obstore.get_range(self._store, key, start=start, length=size))
            except BaseError as error:
                if any(sign in str(error) for sign in _BEYOND_END):
                    return b""
                raise

    def delete(self, key: str) -> None:
        check_key(key)
        with self._translated("delete", key):
            try:
                obstore.delete(self._store, key)
            except (FileNotFoundError, NotFoundError):
                return

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        prefix = check_prefix(prefix)
        with self._translated("list", prefix):
            for page in obstore.list(self._store, prefix or None):
                for each in page:
                    yield ObjectInfo(key=each["path"], size=each["size"])

    def close(self) -> None:
        """Do nothing: obstore closes idle connections."""


def _payload_options(checksum: str | None, *, is_tls: bool) -> dict[str, Any]:
    """Return how a payload is protected on its way. Raises `ConfigError`.

    A signed payload takes a SHA-256, 0.7 ms per MB, a CRC-64/NVME 0.1. A CRC finds damage, but an attacker on the
    network can forge it, so it is the default only with TLS.
    """
    if checksum is None:
        checksum = "crc64nvme" if is_tls else "sha256"
    if checksum not in PAYLOAD_CHECKSUMS:
        raise ConfigError(f"rsm.config.payload.checksum={checksum}: expected one of {', '.join(PAYLOAD_CHECKSUMS)}")
    if checksum == "none" and not is_tls:
        raise ConfigError("rsm.config.payload.checksum=none: without TLS the store must check what it receives")
    options: dict[str, Any] = {"unsigned_payload": checksum != "sha256"}
    return options | ({"checksum_algorithm": checksum} if checksum == "crc64nvme" else {})


def _short(error: BaseException) -> str:
    """Return the first line of an error; signatures and tokens stand in the lines after it, if anywhere."""
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__


_REMEDIES = (
    # Without keys, obstore asks the machine for its role at this address.
    (
        ("169.254.169.254", "credential", "Missing AccessKeyId", "Missing SecretAccessKey"),
        "a key is missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or for a broker rsm.config.access.key.id "
        "and rsm.config.secret.access.key",
    ),
    (
        ("BadDigest", "XAmzContentSHA256Mismatch"),
        "the store received other bytes than were sent: check memory and proxies",
    ),
    (
        ("NotImplemented", "checksum", "Checksum"),
        "a store that does not know CRC-64/NVME needs rsm.config.payload.checksum=sha256, or none",
    ),
    (("NoSuchBucket", "404 Not Found"), "make the bucket, or correct its name"),
    (("403", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch"), "check the keys, and what they may do there"),
    (("error sending request",), "check the endpoint (AWS_ENDPOINT, for a broker rsm.config.endpoint)"),
)


def _remedy(text: str) -> str:
    """Return what to do about an error, by its text."""
    return next((f"; {remedy}" for signs, remedy in _REMEDIES if any(sign in text for sign in signs)), "")


def open_s3_remote_storage(url: str, settings: Mapping[str, str]) -> S3RemoteStorage:
    """Open the bucket of a URL. Raises `ConfigError`."""
    form = _FORM.fullmatch(url)
    if form is None:
        raise ConfigError(
            "the URL of the remote storage is not of the form s3://BUCKET/PREFIX, where BUCKET has 2 to 63 letters, "
            "digits, '.', '_' and '-'; keys go to rsm.config.*, or into the environment"
        )
    return S3RemoteStorage(form["bucket"], check_prefix((form["prefix"] or "").strip("/")), settings)
