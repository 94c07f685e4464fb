"""Decoders of what clients say before they are known, of their certificates, and of security nodes in the tree."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from struct import pack
from typing import Any

from attrs import frozen
from support.certificates import certificate
from support.kafka_frames import ServerEnd, header, request_frame
from support.kafka_samples import SAMPLES

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.adapters.wire_kafka.authentication import ServerAuthentication
from barnabas.core.cluster import layout
from barnabas.core.security.acl import decode_acls
from barnabas.core.security.delegation_tokens import token_credential
from barnabas.core.security.distinguished_name import subject_of
from barnabas.core.security.jaas import parse_jaas
from barnabas.core.security.quotas.client_quotas import ClientQuotas
from barnabas.core.security.quotas.entities import PRODUCER_BYTE_RATE, entity_name, stored_entry
from barnabas.core.security.sasl.exchange import SaslAuthenticationError, ServerExchange
from barnabas.core.security.sasl.oauthbearer import InvalidToken, OauthbearerServerExchange
from barnabas.core.security.sasl.plain import PlainServerExchange, PlainUsers
from barnabas.core.security.sasl.scram import (
    ScramCredentials,
    ScramServerExchange,
    credential_of,
    salted_password,
)
from barnabas.core.security.sasl.server_authenticator import SaslListener, SaslMechanism
from barnabas.core.security.scram_users import decode_credential, encode_credential, parse_bootstrap_users
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError, Malformed
from barnabas.ports.values import Secret

SCRAM = "SCRAM-SHA-256"
METADATA, HANDSHAKE, AUTHENTICATE = 3, 17, 36
REFUSED = ApiError(ErrorCode.INVALID_REQUEST, "no")
_CREDENTIAL = credential_of(SCRAM, salted_password(SCRAM, "wonder", b"salt", 4096), b"salt", 4096)
_SCRAM_FIRST = b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"
_SCRAM_FINAL = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawLserver,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
_OAUTHBEARER = b"n,,\x01auth=Bearer a.b.c\x01scope=x\x01\x01"


@frozen
class Decoder:
    """`decode` may raise `errors`, and nothing else."""

    decode: Callable[[bytes], object]
    seeds: Sequence[bytes]
    errors: tuple[type[Exception], ...] = (ValueError,)


class _NoToken:
    def validate(self, token: str) -> Any:
        raise InvalidToken(token[:10])


def _plain() -> ServerExchange:
    return PlainServerExchange(PlainUsers({"alice": Secret("wonder")}))


def _scram() -> ServerExchange:
    found = ScramCredentials(
        SCRAM,
        of_user=lambda user: _CREDENTIAL if user == "alice" else None,
        of_token=lambda _: None,
        pretended=Secret(b"k"),
    )
    return ScramServerExchange(found, "server")


def _oauthbearer() -> ServerExchange:
    return OauthbearerServerExchange(_NoToken())


def _messages(make: Callable[[], ServerExchange]) -> Callable[[bytes], None]:
    """Return a target for the messages of a client, one a line."""

    def decode(data: bytes) -> None:
        exchange = make()
        for message in data.split(b"\n"):
            exchange.evaluate(message)

    return decode


def _frame(key: int, body: bytes) -> bytes:
    content = header(key, 1, 5) + body
    return pack(">H", len(content)) + content


def _conversation(data: bytes) -> None:
    """The frames of a connection to a listener with SASL, each behind its length in two bytes."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    mechanisms = {
        "PLAIN": SaslMechanism(make_exchange=_plain, max_reauth_ms=1000),
        SCRAM: SaslMechanism(make_exchange=_scram),
        "OAUTHBEARER": SaslMechanism(make_exchange=_oauthbearer),
    }
    settings = ServerAuthentication(
        listener=SaslListener(mechanisms=mechanisms, failed_delay_ms=0), scheduler=scheduler, clock=clock
    )
    end = ServerEnd(lambda request: request.failed(REFUSED), authentication=settings)
    at = 0
    while at + 2 <= len(data) and not end.connection.is_closed:
        size = int.from_bytes(data[at : at + 2], "big")
        end.send(data[at + 2 : at + 2 + size])
        at += 2 + size
        scheduler.advance(1)
    assert not any(caller.principal.name not in ("alice", "ANONYMOUS") for caller in end.broker.callers)


def _text(value: bytes) -> bytes:
    return pack(">h", len(value)) + value


def _data(value: bytes) -> bytes:
    return pack(">i", len(value)) + value


def _metadata() -> bytes:
    content = request_frame(METADATA, 9, 7, SAMPLES[METADATA].at(9).request)
    return pack(">H", len(content)) + content


def _conversations() -> list[bytes]:
    plain = _frame(HANDSHAKE, _text(b"PLAIN")) + _frame(AUTHENTICATE, _data(b"\0alice\0wonder"))
    scram = _frame(HANDSHAKE, _text(SCRAM.encode())) + _frame(AUTHENTICATE, _data(_SCRAM_FIRST))
    return [
        plain,
        plain + plain,
        scram + _frame(AUTHENTICATE, _data(_SCRAM_FINAL)),
        _frame(18, b"") + plain,
        plain + _metadata(),
    ]


def _node(decode: Callable[[Mapping[str, object]], object]) -> Callable[[bytes], object]:
    return lambda data: decode(layout.decode_entity(data))


def _quotas(value: Mapping[str, object]) -> None:
    entry = stored_entry(value)
    if entry is not None:
        entity_name(entry.entity)
        ClientQuotas([entry]).find(PRODUCER_BYTE_RATE, "alice", "app")


def _security_decoders() -> dict[str, Decoder]:
    refused = (SaslAuthenticationError,)
    token = {"owner": "User:alice", "expiry_ms": 9, SCRAM: encode_credential(_CREDENTIAL)}
    return {
        "SASL conversations": Decoder(_conversation, _conversations(), ()),
        "PLAIN messages": Decoder(_messages(_plain), [b"\0alice\0wonder", b"alice\0alice\0wonder"], refused),
        "SCRAM messages": Decoder(_messages(_scram), [_SCRAM_FIRST, b"n,a=alice,n=alice,r=abc"], refused),
        "OAUTHBEARER messages": Decoder(_messages(_oauthbearer), [_OAUTHBEARER], refused),
        "subjects of certificates": Decoder(
            subject_of, [_der(certificate("127.0.0.1", common_name="alice").cert_chain_pems[0].bytes())], (Malformed,)
        ),
        "JAAS": Decoder(
            lambda data: parse_jaas(Secret(data.decode("latin-1")), "sasl.jaas.config"),
            [b'PlainLoginModule required username="a" password="b\\"c" user_x=\'y\';'],
            (ConfigError,),
        ),
        "bootstrap users": Decoder(
            lambda data: parse_bootstrap_users(Secret(data.decode("latin-1")), "sasl.scram.bootstrap.users"),
            [b"SCRAM-SHA-256=[name=alice,password=wonder]"],
            (ConfigError,),
        ),
        "node: quotas": Decoder(
            _node(_quotas),
            [layout.encode_entity({"entity": {"user": "a", "client-id": None}, "limits": {"producer_byte_rate": 5.0}})],
        ),
        "node: ACLs": Decoder(
            _node(lambda value: decode_acls("Topic:LITERAL:t", value)),
            [layout.encode_entity({"acls": [["User:alice", "*", "READ", "ALLOW"]]})],
        ),
        "node: user": Decoder(
            _node(lambda value: decode_credential(value, SCRAM)),
            [layout.encode_entity({SCRAM: encode_credential(_CREDENTIAL)})],
        ),
        "node: token": Decoder(_node(lambda value: token_credential(value, SCRAM, 5)), [layout.encode_entity(token)]),
    }


def _der(certificate_pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate_pem.decode())


SECURITY_DECODERS = _security_decoders()
