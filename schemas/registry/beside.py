"""A registry beside a broker, in `barnabas serve` with `schema.registry.listen`."""

from typing import Any

from .listening import parse_listen


def serve_beside(config: Any, bootstrap: str) -> Any:
    """A registry that serves, over the topics of the broker at `bootstrap`. Raises `ConfigError`."""
    address = parse_listen(config.schema_registry_listen, "schema.registry.listen")
    from .server import RegistryServer

    server = RegistryServer(bootstrap, address, topic="_schemas", validate_defaults=config.avro_validate_defaults)
    server.start()
    return server
