"""TLS for the TCP transport, by Python's `ssl` (OpenSSL)."""

from .contexts import TlsClient, TlsServer, client_tls, server_tls
from .reloading import CertificateReloading, HttpsContext

__all__ = ["CertificateReloading", "HttpsContext", "TlsClient", "TlsServer", "client_tls", "server_tls"]
