"""The `ssl.*` settings of a listener or a client."""

from ...ports.values import Secret, frozen

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""The protocols that Kafka's default enables. TLS 1.0 and 1.1 are broken (RFC 8996) and not supported."""
STORE_TYPES = ("PEM", "PKCS12", "JKS")
CLIENT_AUTH = ("none", "requested", "required")


@frozen(kw_only=True)
class SslSettings:
    """The values of Kafka's `ssl.*` keys, and of librdkafka's for a certificate and its key in two files."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: Secret[str] | None = None
    key_password: Secret[str] | None = None
    keystore_key: Secret[str] | None = None
    """The private key as PEM text."""
    keystore_certificate_chain: str | None = None
    """The certificate and those of its authorities as PEM text."""
    certificate_location: str | None = None
    """A PEM file of the certificate; librdkafka's ssl.certificate.location."""
    key_location: str | None = None
    """A PEM file of the private key; librdkafka's ssl.key.location."""
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: Secret[str] | None = None
    truststore_certificates: str | None = None
    """The certificates of trusted authorities as PEM text."""
    enabled_protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    """Names as Java or OpenSSL writes them; empty: OpenSSL's default."""
    client_auth: str = "none"
    """Whether a listener asks clients for a certificate: none, requested, required."""
    endpoint_identification_algorithm: str = "https"
    """https: the certificate of a server must be for the host that the client connected to; empty: for any host."""
    verify_peer: bool = True
    """False: a client accepts every certificate of a server; librdkafka's enable.ssl.certificate.verification."""

    allow_dn_changes: bool = False
    """Whether a reloaded certificate may have another subject."""
    allow_san_changes: bool = False
    """Whether a reloaded certificate may lack alternative names that the present one has."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that certificates and keys come from."""
        paths = (self.keystore_location, self.certificate_location, self.key_location, self.truststore_location)
        return tuple(path for path in paths if path)

    @property
    def has_certificate(self) -> bool:
        """True if there is a certificate of this end's own."""
        return bool(self.keystore_location or self.keystore_certificate_chain or self.certificate_location)
