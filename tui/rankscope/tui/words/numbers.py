"""Numbers as people read them. None and what cannot be known is a dash."""

import math
import time

DASH = "–"


def count(value: int | None) -> str:
    """``12 480``: thousands apart from five digits on."""
    if value is None:
        return DASH
    return f"{value:,}".replace(",", " ") if abs(value) >= 10_000 else str(value)


def ago(age_s: float, at_s: float | None, *, over: bool) -> str:
    """``6.6 s ago``; of a run that is over the clock's time, which does not grow old: ``at 11-30
    01:24:03``. ``at_s``: the Unix time as of which ``age_s`` is; None: not known."""
    if not over or at_s is None:
        return f"{age(age_s)} ago"
    return time.strftime("at %m-%d %H:%M:%S", time.localtime(at_s - age_s))


def age(seconds: float | None) -> str:
    """How long ago or since: ``0.2 s``, ``42 s``, ``38 min``, ``2 h 14 min``, ``3 d 4 h``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def clock(seconds: float | None) -> str:
    """A running time: ``0:42``, ``2:14:07``, ``3 d 02:14:07``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    whole = int(max(0.0, seconds))
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days} d {hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def span(seconds: float | None) -> str:
    """A short measured time with its unit: ``61 µs``, ``163 ms``, ``1.25 s``, ``95 s``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        scaled = seconds * factor
        if abs(scaled) < 999.5:
            return f"{digits3(scaled)} {unit}"
    return f"{digits3(seconds)} s"


def milliseconds(seconds: float | None) -> str:
    """Bare milliseconds for a row that names its unit once: ``163``, ``0.4``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    value = seconds * 1e3
    return f"{value:.1f}" if 0 < abs(value) < 0.95 else f"{value:.0f}"


def step_time(step_s: float | None, spread_s: float | None) -> str:
    """What steps take, and by how much they differ: ``163 ±4 ms``, ``1.25 ±0.10 s``."""
    if step_s is None:
        return DASH
    words, unit = (milliseconds, "ms") if step_s < 0.9995 else (digits3, "s")
    around = "" if spread_s is None else f" ±{words(spread_s)}"
    return f"{words(step_s):>4}{around} {unit}"


def digits3(value: float | None) -> str:
    """Three digits that count: ``6.13``, ``61.3``, ``613``, ``0.82``; no exponent."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return nonfinite(value)
    size = abs(value)
    places = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:.{places}f}"


def si(value: float | None) -> str:
    """``201 k``, ``1.25 M``: three digits and a decimal prefix."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return nonfinite(value)
    size = abs(value)
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= factor * 0.9995:
            return f"{digits3(value / factor)} {prefix}"
    return f"{value:.0f}"


def size_bytes(value: int | None) -> str:
    """Decimal units, as memory is sold: ``41.2 GB``, ``600 MB``."""
    if value is None:
        return DASH
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor * 0.9995:
            return f"{digits3(value / factor)} {unit}"
    return f"{value} B"


def loss(value: float | None) -> str:
    """Four places; large or tiny values by exponent: ``2.3141``, ``1.2e+06``, ``nan``."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return nonfinite(value)
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def norm(value: float | None) -> str:
    """A gradient norm: ``0.82``, ``12.5``, ``3.1e+05``, ``inf``."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return nonfinite(value)
    return digits3(value) if value == 0 or 0.01 <= abs(value) < 1e4 else f"{value:.1e}"


def nonfinite(value: float) -> str:
    """``nan``, ``inf`` or ``-inf``, as everywhere in rankscope."""
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def ranks(numbers: list[int], limit: int = 8) -> str:
    """``rank 2``, ``ranks 0-3 7``; beyond ``limit`` pieces how many more there are."""
    if not numbers:
        return "no rank"
    pieces: list[str] = []
    ordered = sorted(set(numbers))
    start = previous = ordered[0]
    for number in [*ordered[1:], -1]:
        if number != previous + 1:
            pieces.append(str(start) if start == previous else f"{start}-{previous}")
            start = number
        previous = number
    shown = " ".join(pieces[:limit]) + (f" and {len(pieces) - limit} more" * (len(pieces) > limit))
    return f"rank{'s' * (len(ordered) > 1)} {shown}"


def plural(number: int, noun: str) -> str:
    """``1 rank``, ``4 ranks``."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"
