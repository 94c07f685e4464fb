"""Values that were written with a schema of a registry, as structs: by the newest schema of their topic."""

from ...schemas.access import RegistryAccess
from ...schemas.client import RegistryClient, RegistryRefused
from ...schemas.columns.avro import AvroColumns
from ...schemas.columns.decoded import ColumnDecoder
from ...schemas.columns.json import JsonColumns
from ...schemas.columns.json_types import json_type
from ...schemas.columns.protobuf import ProtobufColumns
from ...schemas.loaded_avro import registered_avro

_NO_SUBJECT = 40401


class RegisteredValues:
    """Decoders of the values of topics. Raises what the registry's client does, and `ConfigError` for a schema."""

    def __init__(self, registry: RegistryAccess | str) -> None:
        self._client = RegistryClient(registry)

    def decoder_of(self, topic: str) -> ColumnDecoder | None:
        """Return the decoder; None if the registry has no schema of TOPIC-value: the values stay as they are then."""
        subject = f"{topic}-value"
        try:
            schema = self._client.latest(subject)
        except RegistryRefused as error:
            if error.error_code == _NO_SUBJECT:
                return None
            raise
        if schema.kind == "AVRO":
            return AvroColumns(self._client, registered_avro(self._client, schema))
        if schema.kind == "PROTOBUF":
            return ProtobufColumns(self._client, self._client.latest(subject, serialized=True))
        return JsonColumns(json_type(schema.text))
