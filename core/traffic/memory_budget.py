"""What many hold in memory together, and who of them waits while it is too much.

Whoever holds less than an equal share goes on: a few that take much and give nothing back stop themselves, not others.
"""

from collections.abc import Callable


class MemoryBudget:
    """The accounts of those who share a bound. One thread only."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes, of all accounts."""
        self.holders = 0
        """Accounts that hold anything."""
        self._waiting: dict[Account, bool] = {}  # in the order of their coming; True: in the middle of a request
        self._priority: Account | None = None

    @property
    def waiting(self) -> int:
        """How many accounts wait."""
        return len(self._waiting)

    def must_wait(self, account: "Account", *, in_a_request: bool) -> bool:
        """See `Account.must_wait`."""
        if not in_a_request:
            self.release_priority(account)
        if not account.is_over:
            return False
        if in_a_request and self._priority in (None, account):
            self._priority = account  # else all who share the memory may wait for each other's other halves
            return False
        self._waiting[account] = in_a_request
        return True

    def has_priority(self, account: "Account") -> bool:
        """True if it may go on, whatever it holds, to bring its request to an end."""
        return self._priority is account

    def release_priority(self, account: "Account") -> None:
        """Let the next one in the middle of a request go on. Harmless for who does not lead."""
        if self._priority is account:
            self._priority = next((each for each, in_a_request in self._waiting.items() if in_a_request), None)
            if self._priority is not None:
                self._release(self._priority)

    def resume_waiting(self, account: "Account") -> None:
        """`account` holds less than before: let those go on who need not wait any longer."""
        if not self._waiting:
            return
        if self.held <= account.bytes_max:
            for each in tuple(self._waiting):
                self._release(each)
        elif account in self._waiting and not account.is_over:
            self._release(account)

    def remove_account(self, account: "Account") -> None:
        """It is closed."""
        self._waiting.pop(account, None)
        self.release_priority(account)

    def _release(self, account: "Account") -> None:
        del self._waiting[account]
        account.on_resume()


class Account:
    """What one of them holds. `bytes_max` bounds all accounts together; 0 = no bound."""

    __slots__ = ("_budget", "bytes_max", "on_resume", "held")

    def __init__(self, budget: MemoryBudget, bytes_max: int, on_resume: Callable[[], None]) -> None:
        """`on_resume` is called, possibly within a call of another account, when a wait is over."""
        self._budget = budget
        self.bytes_max = bytes_max
        self.on_resume = on_resume
        self.held = 0

    def set_held(self, held: int) -> None:
        """It holds so many bytes now."""
        before, self.held = self.held, held
        budget = self._budget
        budget.held += held - before
        if not before or not held:
            budget.holders += bool(held) - bool(before)
        if held < before:
            budget.resume_waiting(self)

    @property
    def is_over(self) -> bool:
        """True if all hold too much, and this one more than its share."""
        budget = self._budget
        return 0 < self.bytes_max < budget.held and self.held * budget.holders > self.bytes_max

    def must_wait(self, *, in_a_request: bool = False) -> bool:
        """True if it is not to take more for now; `on_resume` follows then.

        `in_a_request`: what it holds cannot be given back before more comes. One such at a time may go on.
        """
        return self._budget.must_wait(self, in_a_request=in_a_request)

    @property
    def has_priority(self) -> bool:
        """See `MemoryBudget.has_priority`."""
        return self._budget.has_priority(self)

    def close(self) -> None:
        """It holds nothing any more, and does not wait."""
        self.set_held(0)
        self._budget.remove_account(self)
