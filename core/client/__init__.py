"""What clients decide, as state machines that take messages and the time: what to send where, and when to try again."""
