"""TLS for the TCP transport, by Python's `ssl` (OpenSSL)."""

from .contexts import TlsClient, TlsServer, client_tls, server_tls

__all__ = ["TlsClient", "TlsServer", "client_tls", "server_tls"]
