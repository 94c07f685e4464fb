"""The client's state machines: they take messages and the time, and decide what to send where and when to retry."""
