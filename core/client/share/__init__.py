"""The state machines of a share consumer (KIP-932): membership, share sessions, acknowledgements."""
