"""The built-in remote storages, and the opening of one of them or of a plug-in's by its URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..extras import require

if TYPE_CHECKING:
    from ...plugins.host import PluginHost
    from ...ports.remote_storage import RemoteStorage


def open_remote_storage(url: str, settings: Mapping[str, str], plugins: PluginHost) -> RemoteStorage:
    """Open the remote storage of a URL, or of a plug-in by its name.

    Raises `ConfigError` for an unknown scheme, which lists the known ones, and for malformed parts.
    """
    factory = plugins.remote_storage(url.partition("://")[0], _BUILT_IN)
    return factory(url, settings)


def _folder(url: str, settings: Mapping[str, str]) -> RemoteStorage:
    from ...adapters.remote_folder import open_folder_remote_storage

    return open_folder_remote_storage(url, settings)


def _memory(url: str, settings: Mapping[str, str]) -> RemoteStorage:
    from ...adapters.remote_memory import open_memory_remote_storage

    return open_memory_remote_storage(url, settings)


def _s3(url: str, settings: Mapping[str, str]) -> RemoteStorage:
    require("remote storage in s3://", ["obstore"], "s3")
    from ...adapters.remote_s3 import open_s3_remote_storage

    return open_s3_remote_storage(url, settings)


_BUILT_IN = {"file": _folder, "memory": _memory, "s3": _s3}
