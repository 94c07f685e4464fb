"""The classes whose fields are configuration keys behave as frozen classes of attrs."""

import pytest
from attrs import evolve, fields
from attrs.exceptions import FrozenInstanceError

from barnabas.app.config import BrokerConfig
from barnabas.app.config.broker_config import EFFECTIVE_KEYS
from barnabas.app.config.tls_keys import TlsKeys
from barnabas.ports.errors import ConfigError


def test_default_of_every_key_is_a_value_of_its_kind() -> None:
    config = BrokerConfig()
    for key in EFFECTIVE_KEYS.values():
        if key.default is not None:
            parsed = key.parse(key.default)
            assert (getattr(config, key.attribute), type(key.default)) == (parsed, type(parsed)), key.name


def test_values_are_converted_and_checked() -> None:
    assert BrokerConfig(num_partitions="4").num_partitions == 4  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="num"):
        BrokerConfig(num_partitions=0)


def test_unknown_name_is_refused() -> None:
    with pytest.raises(TypeError, match="no_such_key"):
        BrokerConfig(no_such_key=1)  # type: ignore[call-arg]


def test_table_of_attrs_can_be_copied_with_changes() -> None:
    config = BrokerConfig(broker_id=7, num_partitions=4)
    changed = evolve(config, num_partitions=5)
    assert (changed.broker_id, changed.num_partitions, config.num_partitions) == (7, 5, 4)
    assert {each.name for each in fields(BrokerConfig)} > {each.name for each in fields(TlsKeys)}


def test_fields_cannot_be_changed() -> None:
    config = BrokerConfig()
    with pytest.raises(FrozenInstanceError):
        config.broker_id = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del config.broker_id


def test_equality_and_text_regard_every_field() -> None:
    assert BrokerConfig(broker_id=2) == BrokerConfig(broker_id="2")  # type: ignore[arg-type]
    assert BrokerConfig(broker_id=2) != BrokerConfig()
    assert BrokerConfig() != TlsKeys()
    assert "broker_id=2, " in repr(BrokerConfig(broker_id=2))
    assert "hunter2" not in repr(BrokerConfig(ssl_key_password="hunter2"))  # type: ignore[arg-type]
