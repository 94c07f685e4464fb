"""Client and server joined: every request in every version arrives as it was sent, and so does its result."""

from typing import Any

import pytest
from support.kafka_pair import ScriptedBroker, joined, linked, normal
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka import KafkaServer, versions
from barnabas.adapters.wire_kafka.api import Api
from barnabas.adapters.wire_kafka.schema import FieldCodec
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.ports.broker_api.envelope import Caller


class _CappedServer(KafkaServer):
    """A server that offers one version only."""

    def cap(self, key: int, version: int) -> None:
        self._body = versions.response_body(3, [(key, version, version)])

    def api_versions(self, version: int, *, to_own_client: bool = False) -> bytes:
        return self._body


def _through(api: Api, version: int, codec: FieldCodec[Any], value: Any) -> Any:
    """Return the value as this version can express it; the oracle checks the bytes."""
    writer = api.writer(version)
    codec.write(writer, version, value)
    return codec.read(api.reader(version, memoryview(joined(writer.pieces())), 0, 1000), version)


@pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(api, version, id=f"{api.name}-{version}")
        for api in BY_KEY.values()
        for version in range(api.versions[0], api.versions[1] + 1)
        if api.least_version is None or version >= api.least_version(SAMPLES[api.key].at(version).request)
        if api.most_version is None or version <= api.most_version(SAMPLES[api.key].at(version).request)
    ],
)
def test_there_and_back(api: Api, version: int) -> None:
    sample = SAMPLES[api.key].at(version)
    broker = ScriptedBroker(lambda request: sample.result)
    reports: list[str] = []
    server = _CappedServer(broker, listener="PAIR", report=reports.append)
    server.cap(api.key, version)
    transport, link = linked(server)
    replies: list[Any] = []
    for _ in range(3):
        link.submit(sample.request, Caller(), replies.append)
    transport.run()
    expected = normal(_through(api, version, api.request, sample.request))
    assert [normal(request) for request in broker.requests] == [expected] * 3
    observed = _through(api, version, api.result, sample.result)
    if api.completed is not None:
        observed = api.completed(sample.request, observed)
    assert normal(replies) == normal([observed] * 3)
    assert {caller.client_id for caller in broker.callers} == {"pair"}
    link.close()
    transport.run()
    assert reports == []
    assert all(end.handler is None for end in transport.ends)
