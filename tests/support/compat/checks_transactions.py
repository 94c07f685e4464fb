"""The checks of transactions, fencing, and offsets within a transaction."""

from collections.abc import Sequence

from support.waiting import wait_for

from .checks_messages import contents, records_of
from .model import PATIENCE_S, Client, Record, Start
from .world import World


def check_transactions(world: World, client: Client) -> None:
    topic, name = world.topic(), world.name("txn")
    rounds = [(records_of(f"round {number}", 5), number != 1) for number in range(3)]
    for records, commit in rounds:
        client.transact(name, topic, records, commit=commit)
    expected = [record for records, commit in rounds if commit for record in records]
    _until_committed(world, topic, expected)
    assert len(world.stored(topic)) == 15
    found = client.read(topic, len(expected), Start(committed=True))
    assert contents(found) == contents(expected)
    assert len(client.read(topic, 15)) == 15


def check_fencing(world: World, client: Client) -> None:
    topic, name = world.topic(), world.name("txn")
    second = Record(value=b"second")
    said = client.zombie(name, topic, Record(value=b"first"), second)
    assert said, "the first producer was not fenced"
    _until_committed(world, topic, [second])


def check_transform(world: World, client: Client) -> None:
    source, topic, name, group = world.topic(), world.topic(), world.name("txn"), world.name("group")
    records = records_of("source", 10)
    world.send(source, records)
    client.transform(name, group, source, topic, 4, commit=False)
    assert world.position(group, source) is None
    for count, position in ((4, 4), (6, 10)):
        client.transform(name, group, source, topic, count, commit=True)
        wait_for(lambda at=position: world.position(group, source) == at, PATIENCE_S)  # type: ignore[misc]  # a default
    _until_committed(world, topic, records)


def check_version_2(world: World, client: Client) -> None:
    """EndTxn raises the epoch of the producer, besides what each new producer of the name does."""
    _check_epochs(world, client, [1, 3, 5])


def check_version_1(world: World, client: Client) -> None:
    """The epoch stays that of the producer."""
    _check_epochs(world, client, [0, 1, 2])


def _check_epochs(world: World, client: Client, expected: Sequence[int]) -> None:
    topic, name = world.topic(), world.name("txn")
    epochs, committed = [], []
    for number in range(3):
        records = records_of(f"round {number}", 3)
        client.transact(name, topic, records, commit=number != 1)
        epochs.append(world.epoch(name))
        if number != 1:
            committed += records
    assert epochs == expected
    _until_committed(world, topic, committed)


def _until_committed(world: World, topic: str, records: Sequence[Record]) -> None:
    """The markers come after the answer to who commits."""
    expected = [record.value for record in records]
    wait_for(lambda: len(world.committed(topic)) >= len(expected), PATIENCE_S)
    assert world.committed(topic) == expected
