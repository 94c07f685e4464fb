"""The keys of authorization: Kafka's, and those of classic listeners, whose protocol has no principals."""

from .key_table import key_table
from .keys import flag_key, list_key, text_key

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
STANDARD_AUTHORIZERS = (STANDARD_AUTHORIZER, "kafka.security.authorizer.AclAuthorizer", "StandardAuthorizer")
"""The names of the built-in authorizer: Kafka's today, Kafka's with ZooKeeper, and in short."""


@key_table
class AuthorizerKeys:
    """A part of the table; see `BrokerConfig`."""

    authorizer_class_name: str = text_key(
        "authorizer.class.name",
        "",
        doc=f"{STANDARD_AUTHORIZER} checks each request against ACLs; another name is that of a plug-in (hook "
        "barnabas_authorizer). Empty: all requests are allowed.",
    )
    super_users: str = text_key(
        "super.users",
        "",
        doc="The principals that no ACL restricts, separated by semicolons: User:admin;User:CN=broker1.",
    )
    allow_everyone_if_no_acl_found: bool = flag_key(
        "allow.everyone.if.no.acl.found",
        False,
        doc="Whether every principal may use a resource that has no ACLs.",
    )
    classic_allowed_addresses: tuple[str, ...] = list_key(
        "classic.allowed.addresses",
        (),
        doc="The addresses and networks (10.0.0.0/8) whose clients may use a classic listener. Empty: all.",
        scope="listener",
    )
    classic_allowed_subjects: tuple[str, ...] = list_key(
        "classic.allowed.subjects",
        (),
        doc="The principals (User:NAME) of client certificates that may use a classic listener. Empty: all.",
        scope="listener",
    )
    classic_read_only: bool = flag_key(
        "classic.read.only",
        False,
        doc="Whether a classic listener refuses produce requests.",
        scope="listener",
    )
