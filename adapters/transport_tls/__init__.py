"""TLS for the TCP transport, by Python's `ssl` (OpenSSL)."""

from .contexts import TlsClient, TlsServer, client_tls, server_tls
from .reloading import CertificateReloading

__all__ = ["CertificateReloading", "TlsClient", "TlsServer", "client_tls", "server_tls"]
