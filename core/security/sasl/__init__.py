"""The SASL mechanisms, as exchanges of both sides, and the states of a connection that authenticates."""
