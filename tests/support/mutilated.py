"""Frames that are cut short or changed, for fuzz tests of wire formats."""

from hypothesis import strategies as st


@st.composite
def mutilated(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw the content cut short, with bytes changed, or with bytes inserted."""
    damaged = bytearray(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)
    for _ in range(draw(st.integers(0, 3))):
        if damaged:
            damaged[draw(st.integers(0, len(damaged) - 1))] = draw(
                st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
            )
    if draw(st.booleans()):
        at = draw(st.integers(0, len(damaged)))
        damaged[at:at] = draw(st.binary(max_size=6))
    return bytes(damaged)
