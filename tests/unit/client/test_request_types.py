"""A request whose content has the wrong types is refused before it is sent, with the name of the field."""

from typing import Any

import pytest

from barnabas.core.client.arguments import check_request
from barnabas.ports.broker_api.cluster import DescribeLogDirs
from barnabas.ports.broker_api.configs import ConfigDescription, ConfigResource, DescribeConfigs, ResourceKind
from barnabas.ports.broker_api.groups import FindCoordinator
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.producers import InitProducerId
from barnabas.ports.broker_api.topics import CreateTopics, NewTopic


def listed(topic: Any = "t", partition: Any = 0, timestamp: Any = 0) -> ListOffsets:
    part = ListOffsetsPartition(topic=topic, partition=partition, timestamp=timestamp)
    return ListOffsets(partitions=[part], isolation_level=0)


@pytest.mark.parametrize(
    "request_",
    [
        Metadata(topics=None),
        Metadata(topics={"a"}),  # type: ignore[arg-type]  # any collection will do
        CreateTopics(topics=(NewTopic(name="t", configs={"a": None}, assignments={0: [1]}),)),
        DescribeLogDirs(topics={"t": [0]}),
        DescribeConfigs(
            resources=[ConfigDescription(resource=ConfigResource(kind=ResourceKind.TOPIC, name="t"), keys=None)]
        ),
        listed(),
        InitProducerId(transactional_id=None, transaction_timeout_ms=1),
    ],
)
def test_right_types_pass(request_: Any) -> None:
    check_request(request_)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Metadata(topics="orders"), r"Metadata.topics: expected a list, got str \('orders'\)"),
        (Metadata(topics=[b"t"]), r"Metadata.topics\[0\]: expected str, got bytes"),  # type: ignore[list-item]
        (CreateTopics(topics=["t"]), r"topics\[0\]: expected NewTopic, got str"),  # type: ignore[list-item]
        (CreateTopics(topics=[NewTopic(name="t", partitions="3")]), r"\[0\].partitions: expected int, got str"),  # type: ignore[arg-type]
        (CreateTopics(topics=[NewTopic(name="t", configs={"a": 5})]), r"configs\['a'\]: expected str, got int"),  # type: ignore[dict-item]
        (DescribeLogDirs(topics=["t"]), "DescribeLogDirs.topics: expected a mapping, got list"),  # type: ignore[arg-type]
        (listed(timestamp=1.5), "timestamp: expected int, got float"),
        (FindCoordinator(keys=[None], key_type=0), r"keys\[0\]: expected str, got NoneType"),  # type: ignore[list-item]
    ],
)
def test_wrong_type_names_the_field(request_: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        check_request(request_)


@pytest.mark.parametrize("request_", [listed(timestamp=2**70), Metadata(topics=["\ud800"])])
def test_value_that_no_request_can_carry_is_refused(request_: Any) -> None:
    with pytest.raises(ValueError, match=r"64 bits|surrogates"):
        check_request(request_)
