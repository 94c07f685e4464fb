"""The build backend: setuptools, with mypy for BARNABAS_COMPILE=1 (docs/design/architecture.md, 'Compiled modules')."""

import os
from collections.abc import Mapping
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

COMPILER = ["mypy>=2.4", "attrs>=23.2", "crc32c>=2.7"]
"""mypy has mypyc; it reads the types of the libraries that the compiled modules use."""


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the build environment of a wheel needs."""
    needed: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    return needed + COMPILER if os.environ.get("BARNABAS_COMPILE") == "1" else needed
