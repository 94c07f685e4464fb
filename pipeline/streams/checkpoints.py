"""Checkpoints of Spark's own Kafka source and of ours."""

import json
import os
import shutil
from pathlib import Path

from ...ports.errors import ConfigError
from ..source.stream_plan import StreamOffsets

_OFFSETS = "offsets"
_VERSION = "v1"


def connector_checkpoint(checkpoint: str | os.PathLike[str], copy: str | os.PathLike[str]) -> int:
    """Copy the checkpoint of a stream that reads `format("barnabas")`, so that the same stream with `format("kafka")`
    continues where it was; return the number of batches whose offsets were rewritten.

    The other direction needs no copy: `format("barnabas")` reads a checkpoint of `format("kafka")` as it is. Both are
    folders of this machine, and the stream is stopped. Raises `ConfigError` if `copy` exists, or if `checkpoint` is no
    checkpoint.
    """
    source, target = Path(checkpoint), Path(copy)
    if not (source / _OFFSETS).is_dir():
        raise ConfigError(f"{source} is no checkpoint of a stream: it has no folder {_OFFSETS!r}")
    if target.exists():
        raise ConfigError(f"{target} already exists; give a folder that does not")
    draft = target.with_name(f".{target.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    rewritten = 0
    for file in sorted((draft / _OFFSETS).glob("[0-9]*")):
        rewritten += _rewrite(file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what was there before
    draft.rename(target)
    return rewritten


def _rewrite(file: Path) -> bool:
    """A batch's offsets: a version, metadata, then a line per source of the stream, "-" for none."""
    version, metadata, *sources = file.read_text(encoding="utf-8").split("\n")
    if version != _VERSION:
        raise ConfigError(f"{file.name} of the checkpoint's offsets has version {version!r}, not {_VERSION}")
    lines = [_connector_line(line) for line in sources]
    file.write_text("\n".join([version, metadata, *lines]), encoding="utf-8")
    return lines != sources


def _connector_line(line: str) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        return line  # another kind of source
    if not isinstance(found, dict) or not isinstance(found.get("offsets"), str):
        return line
    return StreamOffsets.unpacked(found).connector_form()
