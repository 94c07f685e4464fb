"""The checker finds what it is there to find, and nothing in a history that is right."""

from collections.abc import Callable

import pytest
from chaos.checker import KINDS, check
from chaos.history import ACKNOWLEDGED, REFUSED, UNKNOWN, Commit, History, Poll, Send, Share


def _right() -> History:
    """Two producers, a reader by itself and a group of two, one of which read something again after a rebalance."""
    history = History(groups={"g-1": "g", "g-2": "g"}, drained={"g", "reader"})
    for number in range(6):
        history.sends.append(Send("p", number, 0, 0.0, 1.0, ACKNOWLEDGED, number))
    history.sends.append(Send("q", 0, 1, 0.0, 1.0, UNKNOWN, -1))
    history.sends.append(Send("q", 1, 1, 0.0, 1.0, UNKNOWN, -1))
    history.sends.append(Send("q", 2, 1, 0.0, 1.0, REFUSED, -1))
    history.final = {0: [(n, f"p.{n}") for n in range(6)], 1: [(0, "q.1")]}
    for partition, messages in history.final.items():
        for offset, value in messages:
            history.polls.append(Poll("reader", 0, partition, offset, value, 2.0))
            history.polls.append(Poll("g-1" if offset < 4 else "g-2", 0, partition, offset, value, 2.0))
    history.polls.append(Poll("g-2", 1, 0, 3, "p.3", 2.0))
    history.commits.append(Commit("g", 0, 6, 3.0))
    for number, offset in enumerate((*range(6), 3)):  # offset 3 was released, or its lock has ended
        history.shares.append(Share(f"s-{number % 2}", 0, offset, 2.0))
    history.shares.append(Share("s-0", 1, 0, 2.0))
    history.shares += [Share("s-0", 0, offset, 3.0, True) for offset in range(6)]
    history.is_shared = True
    log = [(0, 0, 11), (2, 0, 12), (5, 1, 13)]
    history.replicas = {"t-0": {1: log, 2: list(log), 3: log[1:]}, "t-1": {1: [], 2: [(0, 1, 5)], 3: [(0, 1, 5)]}}
    return history


def test_correct_history_passes_the_checker() -> None:
    verdict = check(_right())
    assert verdict.clean, verdict


def _lose(history: History) -> None:
    history.final[0].pop()
    history.polls = [poll for poll in history.polls if poll.value != "p.5"]
    history.commits.clear()


def _lose_what_was_only_read(history: History) -> None:
    history.final[1].clear()
    history.drained.clear()


def _double(history: History) -> None:
    history.final[0].append((6, "p.2"))
    history.drained.clear()


def _two_at_one_place(history: History) -> None:
    history.polls[0] = history.polls[0]._replace(value="p.4")


def _acknowledged_elsewhere(history: History) -> None:
    history.sends[5] = history.sends[5]._replace(offset=4)


def _out_of_order(history: History) -> None:
    one, two = history.sends[1:3]
    history.sends[1:3] = [one._replace(offset=2), two._replace(offset=1)]


def _back(history: History) -> None:
    history.polls.append(Poll("reader", 0, 0, 5, "p.5", 9.0))


def _skip(history: History) -> None:
    history.polls = [poll for poll in history.polls if (poll.client, poll.offset) != ("reader", 2)]


def _never_given(history: History) -> None:
    history.polls = [poll for poll in history.polls if not (poll.client.startswith("g") and poll.offset == 5)]


def _from_nowhere(history: History) -> None:
    history.final[1].append((1, "x.1"))
    history.drained.clear()


def _refused_and_there(history: History) -> None:
    history.final[1].append((1, "q.2"))
    history.drained.clear()


def _committed_beyond(history: History) -> None:
    history.commits.append(Commit("g", 1, 2, 3.0))


def _forgotten(history: History) -> None:
    history.polls.append(Poll("g-1", 1, 0, 4, "p.4", 4.0))


def _reset(history: History) -> None:
    history.resets.append("reader: offset 7 of partition 0 is out of range")


def _break(history: History) -> None:
    history.broken.append("p: OUT_OF_ORDER_SEQUENCE_NUMBER")


def _accept_twice(history: History) -> None:
    history.shares.append(Share("s-1", 0, 2, 4.0, True))


def _never_shared(history: History) -> None:
    history.shares = [share for share in history.shares if share.offset != 4]


def _other_batch(history: History) -> None:
    history.replicas["t-0"][2][1] = (2, 0, 99)


def _other_epoch(history: History) -> None:
    history.replicas["t-0"][3][1] = (5, 0, 13)


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (_lose, "lost-write"),
        (_lose_what_was_only_read, "lost-write"),
        (_double, "duplicate"),
        (_two_at_one_place, "inconsistent-offsets"),
        (_acknowledged_elsewhere, "inconsistent-offsets"),
        (_out_of_order, "nonmonotonic-send"),
        (_back, "nonmonotonic-poll"),
        (_skip, "poll-skip"),
        (_never_given, "group-skip"),
        (_from_nowhere, "unexpected-value"),
        (_refused_and_there, "unexpected-value"),
        (_committed_beyond, "position-lost"),
        (_reset, "position-lost"),
        (_forgotten, "position-back"),
        (_break, "producer-broken"),
        (_accept_twice, "accepted-twice"),
        (_never_shared, "share-skip"),
        (_other_batch, "diverging-replicas"),
        (_other_epoch, "diverging-replicas"),
    ],
)
def test_wrong_history_fails_the_checker(spoil: Callable[[History], None], kind: str) -> None:
    history = _right()
    spoil(history)
    verdict = check(history)
    assert kind in verdict.counts, verdict
    assert verdict.examples[kind]
    assert verdict.counts.keys() <= KINDS.keys()
