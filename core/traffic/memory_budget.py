"""A memory bound that connections share, and the connections that wait for memory (Kafka: MemoryPool).

A connection with less than an equal share never waits, so a few large holders stop only themselves.
"""

from collections.abc import Callable


class MemoryBudget:
    """The accounts that share a bound. One thread only."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes held by all accounts."""
        self.holders = 0
        """Number of accounts that hold memory."""
        self._waiting: dict[Account, bool] = {}  # in order of arrival; True: in the middle of a request
        self._priority: Account | None = None

    @property
    def waiting(self) -> int:
        """Number of waiting accounts."""
        return len(self._waiting)

    def must_wait(self, account: "Account", *, in_a_request: bool) -> bool:
        """See `Account.must_wait`."""
        if not in_a_request:
            self.release_priority(account)
        if not account.is_over:
            return False
        if in_a_request and self._priority in (None, account):
            self._priority = account  # else all may wait for each other with half a request each
            return False
        self._waiting[account] = in_a_request
        return True

    def has_priority(self, account: "Account") -> bool:
        """Return True if the account may complete its request whatever it holds."""
        return self._priority is account

    def release_priority(self, account: "Account") -> None:
        """Pass the priority to the next account in the middle of a request. No effect without the priority."""
        if self._priority is account:
            self._priority = next((each for each, in_a_request in self._waiting.items() if in_a_request), None)
            if self._priority is not None:
                self._release(self._priority)

    def resume_waiting(self, account: "Account") -> None:
        """Resume the accounts that need not wait, after `account` released memory."""
        if not self._waiting:
            return
        if self.held <= account.bytes_max:
            for each in tuple(self._waiting):
                self._release(each)
        elif account in self._waiting and not account.is_over:
            self._release(account)

    def remove_account(self, account: "Account") -> None:
        """Remove a closed account."""
        self._waiting.pop(account, None)
        self.release_priority(account)

    def _release(self, account: "Account") -> None:
        del self._waiting[account]
        account.on_resume()


class Account:
    """The memory of one connection. `bytes_max` bounds all accounts together; 0 = no bound."""

    __slots__ = ("_budget", "bytes_max", "held", "on_resume")

    def __init__(self, budget: MemoryBudget, bytes_max: int, on_resume: Callable[[], None]) -> None:
        """`on_resume` is called, possibly within a call of another account, when a wait is over."""
        self._budget = budget
        self.bytes_max = bytes_max
        self.on_resume = on_resume
        self.held = 0

    def set_held(self, held: int) -> None:
        """Set the number of held bytes."""
        before, self.held = self.held, held
        budget = self._budget
        budget.held += held - before
        if not before or not held:
            budget.holders += bool(held) - bool(before)
        if held < before:
            budget.resume_waiting(self)

    @property
    def is_over(self) -> bool:
        """Return True if the bound is exceeded and this account holds more than its share."""
        budget = self._budget
        return 0 < self.bytes_max < budget.held and self.held * budget.holders > self.bytes_max

    def must_wait(self, *, in_a_request: bool = False) -> bool:
        """Return True if the account must not take more memory for now; `on_resume` follows then.

        `in_a_request`: the held memory cannot be released before more arrives. One such account at a time may proceed.
        """
        return self._budget.must_wait(self, in_a_request=in_a_request)

    @property
    def has_priority(self) -> bool:
        """See `MemoryBudget.has_priority`."""
        return self._budget.has_priority(self)

    def close(self) -> None:
        """Release the memory and stop waiting."""
        self.set_held(0)
        self._budget.remove_account(self)
