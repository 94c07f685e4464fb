"""Transactions as their coordinator sees them: who may produce under which id, and how each transaction ends."""
