"""Several texts of metrics as one: each sample gets a label that says which text it comes from."""

from collections.abc import Mapping

_HELP = b"# HELP "
_TYPE = b"# TYPE "


def merge_metrics(texts: Mapping[str, bytes], label: str) -> bytes:
    """Return the metrics of all texts in the text format of Prometheus, each family once.

    `texts`: value of the label → metrics.
    """
    heads: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for value, text in texts.items():
        pair = f'{label}="{value}"'.encode()
        family, known = b"", set(heads)
        for line in text.splitlines():
            if line.startswith((_HELP, _TYPE)):
                family = line[len(_HELP) :].partition(b" ")[0]
                if family not in known:
                    heads.setdefault(family, []).append(line)
            elif line and not line.startswith(b"#"):
                samples.setdefault(family, []).append(_labelled(line, pair))
    lines = [line for family, found in samples.items() for line in (*heads.get(family, ()), *found)]
    return b"\n".join(lines) + b"\n" if lines else b""


def _labelled(sample: bytes, pair: bytes) -> bytes:
    name_end = sample.find(b" ")
    brace = sample.find(b"{", 0, name_end)
    if brace < 0:
        return b"%b{%b}%b" % (sample[:name_end], pair, sample[name_end:])
    comma = b"" if sample[brace + 1 : brace + 2] == b"}" else b","
    return b"%b{%b%b%b" % (sample[:brace], pair, comma, sample[brace + 1 :])
