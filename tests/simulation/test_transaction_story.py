"""Transactions under seeded disasters: nothing is lost, doubled or there in part, and positions go with messages.

A failing seed says how it is played again. `make sim` plays many more.
"""

import pytest
from simulation.cluster_checker import Broken
from simulation.transaction_actors import Commitments, SeenItems
from simulation.transaction_story import TransactionStory, check_items


def test_transaction_story(cluster_seed: int) -> None:
    TransactionStory(cluster_seed).play()


RIGHT = [{0: "a t1 0 2", 5: "a t2 2 1"}, {1: "a t1 1 2"}]


@pytest.mark.parametrize(
    ("seen", "position", "word"),
    [
        (RIGHT, 3, ""),
        (RIGHT, 4, "exactly once"),
        (RIGHT, 2, "exactly once"),
        ([{**RIGHT[0], 7: "a t3 1 1"}, RIGHT[1]], 3, "exactly once"),
        ([RIGHT[0], {1: "a t9 1 1"}], 3, "half a transaction"),
        ([{0: "a t2 2 1", 5: "a t1 0 2"}, RIGHT[1]], 3, "order"),
    ],
)
def test_what_is_wrong_is_found(seen: list[dict[int, str]], position: int, word: str) -> None:
    book = Commitments(acknowledged=position)
    if word:
        with pytest.raises(Broken, match=word):
            check_items("a", book, SeenItems(seen))
    else:
        check_items("a", book, SeenItems(seen))
