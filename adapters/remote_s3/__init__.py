"""Remote storage in an S3-compatible object store: `s3://BUCKET/PREFIX`, by obstore (the extra `s3`)."""

from .s3 import S3RemoteStorage, open_s3_remote_storage

__all__ = ["S3RemoteStorage", "open_s3_remote_storage"]
