"""Logs in the file system: `writev` to append, `fsync` to keep, regions for `sendfile`, a lock per data folder."""

from .log_dir import LOCK_FILE, FsLogDir, is_in_use, look_into, open_log_dir

__all__ = ["LOCK_FILE", "FsLogDir", "is_in_use", "look_into", "open_log_dir"]
