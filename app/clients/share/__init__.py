"""The share consumer: a member of a share group (KIP-932)."""
