"""Requests wait while the memory budget is used up, and continue in order."""

from barnabas.core.traffic.memory_budget import Account, MemoryBudget


class Holder:
    def __init__(self, budget: MemoryBudget, bytes_max: int = 100) -> None:
        self.released = 0
        self.account = Account(budget, bytes_max, self._resume)

    def _resume(self) -> None:
        self.released += 1


def _holders(count: int) -> tuple[MemoryBudget, list[Holder]]:
    budget = MemoryBudget()
    return budget, [Holder(budget) for _ in range(count)]


def test_holders_do_not_wait_below_memory_limit() -> None:
    budget, (one, other) = _holders(2)
    one.account.set_held(99)
    other.account.set_held(1)
    assert (budget.held, budget.holders) == (100, 2)
    assert not one.account.must_wait() and not other.account.must_wait()


def test_holders_do_not_wait_without_memory_limit() -> None:
    holder = Holder(MemoryBudget(), 0)
    holder.account.set_held(10**12)
    assert not holder.account.must_wait()


def test_above_the_bound_those_with_more_than_a_share_wait() -> None:
    _, (hog, modest, idle) = _holders(3)
    hog.account.set_held(90)
    modest.account.set_held(20)
    assert hog.account.must_wait()
    assert not modest.account.must_wait()
    assert not idle.account.must_wait()


def test_waiting_holders_resume_in_order_when_memory_is_freed() -> None:
    budget, (one, other) = _holders(2)
    one.account.set_held(60)
    other.account.set_held(60)
    assert other.account.must_wait() and one.account.must_wait()
    one.account.set_held(45)
    assert (one.released, other.released) == (1, 0)  # below its share
    one.account.set_held(40)
    assert (one.released, other.released) == (1, 1)
    assert budget.waiting == 0


def test_one_in_the_middle_of_a_request_leads_and_the_next_follows() -> None:
    _, (one, other, third) = _holders(3)
    for holder in (one, other, third):
        holder.account.set_held(60)
    assert not one.account.must_wait(in_a_request=True)
    assert one.account.has_priority
    assert third.account.must_wait() and other.account.must_wait(in_a_request=True)
    one.account.set_held(90)
    assert not one.account.must_wait(in_a_request=True)
    assert one.account.must_wait(), "its request is over, its answer waits"
    assert other.account.has_priority and (other.released, third.released) == (1, 0)


def test_closed_account_releases_memory_and_priority() -> None:
    budget, (one, other) = _holders(2)
    one.account.set_held(60)
    other.account.set_held(60)
    assert not one.account.must_wait(in_a_request=True) and other.account.must_wait()
    one.account.close()
    assert not one.account.has_priority and other.released == 1
    other.account.set_held(200)
    assert other.account.must_wait()
    other.account.close()
    assert (budget.held, budget.holders, budget.waiting) == (0, 0, 0)
