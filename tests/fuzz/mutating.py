"""Bytes made from others by chance, from a seed."""

from collections.abc import Iterator, Sequence

from barnabas.adapters.system import SeededEntropy

_ODD = (b"\0", b"\xff", b"\x7f", b"\x80", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\0\0\0", b"[", b"9" * 20)


def mutated(seeds: Sequence[bytes], count: int, seed: str) -> Iterator[bytes]:
    """Yield the seeds themselves, then `count` others."""
    yield from seeds
    entropy = SeededEntropy(seed)
    for _ in range(count):
        data = bytearray(seeds[entropy.below(len(seeds))])
        for _ in range(1 + entropy.below(4)):
            at = entropy.below(len(data) + 1)
            kind = entropy.below(6)
            if kind == 0:
                del data[at:]
            elif kind == 1:
                data[at : at + 1] = bytes([entropy.below(256)])
            elif kind == 2:
                odd = _ODD[entropy.below(len(_ODD))]
                data[at : at + len(odd)] = odd
            elif kind == 3:
                data[at:at] = entropy.token(1 + entropy.below(8))
            elif kind == 4:
                piece = data[at : at + 1 + entropy.below(16)]
                data[at:at] = bytes(piece) * (1 + entropy.below(40))
            else:
                other = seeds[entropy.below(len(seeds))]
                data[at:] = other[entropy.below(len(other) + 1) :]
        yield bytes(data)
