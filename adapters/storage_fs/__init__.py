"""Logs in the file system: `writev` to append, `fsync` to keep, regions for `sendfile`, a lock per data folder."""

from .log_dir import FsLogDir, open_log_dir

__all__ = ["FsLogDir", "open_log_dir"]
