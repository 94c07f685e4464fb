"""Web server access logs for Barnabas."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.plugins import CallbackHandler, Partitioner, ProducerItem, hookimpl, murmur2_partition

_COMBINED = re.compile(
    r"(?P<host>\S+) (?P<ident>\S+) (?P<user>\S+) \[(?P<time>[^]]+)] "
    r'"(?P<method>\S+) (?P<path>\S+)(?: (?P<protocol>[^"]*))?" '
    r'(?P<status>\d{3}) (?P<size>\d+|-)(?: "(?P<referrer>[^"]*)" "(?P<agent>[^"]*)")?\s*'
)
_ASSETS = (".css", ".gif", ".ico", ".jpg", ".js", ".png", ".svg")


class AccessLogDecoder:
    """A line of the Apache common or combined format to a dict of its fields."""

    def decode(self, topic: str, data: bytes | None) -> dict[str, Any] | None:  # noqa: ARG002  # given to all decoders
        if data is None:
            return None
        line = data.decode("utf-8", "replace")
        found = _COMBINED.fullmatch(line)
        if found is None:
            return {"malformed": line}
        fields: dict[str, Any] = found.groupdict()
        fields["status"] = int(fields["status"])
        fields["size"] = 0 if fields["size"] == "-" else int(fields["size"])
        return fields


class ClientHostPartitioner(Partitioner):
    """By the key if there is one, else by the first word of the line: the address of the visitor."""

    def partition(
        self,
        topic: str,  # noqa: ARG002
        key: bytes | None,
        value: bytes | None,
        partitions: int,
        available: Sequence[int],  # noqa: ARG002
    ) -> int:
        what = key if key is not None else (value or b"").partition(b" ")[0]
        return murmur2_partition(what, partitions)


class WithoutAssets(CallbackHandler):
    """Leaves out requests for images, styles and scripts."""

    def __init__(self, suffixes: Sequence[str] = _ASSETS) -> None:
        self._asset = re.compile(rb'"\w+ [^ "?]*(?:%s)[? "]' % b"|".join(re.escape(s.encode()) for s in suffixes))

    def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
        if item is None or (isinstance(item.value, bytes) and self._asset.search(item.value)):
            return ()
        return (item,)


@hookimpl
def barnabas_names(kind: str) -> list[str]:
    names = {
        "decoder": ["access_log"],
        "partitioner": ["client_host"],
        "callback_handler": ["without_assets"],
    }
    return names.get(kind, [])


@hookimpl
def barnabas_decoder(name: str) -> AccessLogDecoder | None:
    return AccessLogDecoder() if name == "access_log" else None


@hookimpl
def barnabas_partitioner(name: str) -> ClientHostPartitioner | None:
    return ClientHostPartitioner() if name == "client_host" else None


@hookimpl
def barnabas_callback_handler(name: str, config: Mapping[str, object]) -> WithoutAssets | None:
    if name != "without_assets":
        return None
    suffixes = config.get("suffixes", _ASSETS)
    if isinstance(suffixes, str):
        suffixes = suffixes.split(",")
    if not isinstance(suffixes, Sequence):
        raise ValueError(f"suffixes: expected a list, or a text with commas, not {suffixes!r}")
    return WithoutAssets([str(suffix) for suffix in suffixes])
