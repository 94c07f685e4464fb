"""Remote storage in a folder that all brokers share: `file:///PATH`, on one machine or on a network file system."""

from .folder import FolderRemoteStorage, open_folder_remote_storage

__all__ = ["FolderRemoteStorage", "open_folder_remote_storage"]
