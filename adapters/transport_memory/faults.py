"""The delays and faults of the simulated network."""

from ...ports.values import frozen


@frozen(kw_only=True)
class NetworkFaults:
    """The default is a perfect network: no delay, no loss. Delays need an `Entropy` unless both ends are equal."""

    latency_ms_min: float = 0.0
    latency_ms_max: float = 0.0
    """Each frame, and each attempt to connect, takes a time between the two; frames of a connection stay in order."""
    drop_chance: float = 0.0
    """The chance, for each frame, that the connection is lost instead of the frame arriving."""
    refuse_chance: float = 0.0
    """The chance, for each attempt to connect, that it is refused."""
