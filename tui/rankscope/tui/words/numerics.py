"""How norms before reduction and what was not finite are worded, on the screen and as text."""

import math
from collections.abc import Sequence

from rankscope.protocol.shapes import SEVERITIES, Numerics, NumericsRow, SignRow
from rankscope.tui.words import numbers
from rankscope.tui.words.commands import UPDATED
from rankscope.tui.words.marks import Mark

BARS = "▁▂▃▄▅▆▇█"
WELL = Mark("●", "finite", "good")
FAR = Mark("!", "far off", "warn")
BAD = Mark("✗", "not finite", "bad")
ORIGIN = Mark("✗", "origin", "bad")
"""Of ranks in which, by an open finding, what is not finite began."""
SPOILT = Mark("!", "spoilt", "warn")
"""Not finite by what the origin has spread."""
BLIND = Mark("·", "not seen", "quiet")
OF_KINDS = {
    "gradient-outlier": FAR,
    "replica-divergence": Mark("✗", "differs", "bad"),
    "silent-skip": Mark("✗", "no update", "bad"),
    "duplicate-data": Mark("!", "same data", "warn"),
    "duplicate-seed": Mark("!", "same seed", "warn"),
}
"""Of ranks that an open finding names."""

FAR_DEVIATIONS = 6.0

STAGES = {
    "input": "input",
    "parameter": "parameter before the update",
    "forward": "module output",
    "loss": "loss",
    "gradient": "own gradient",
    "cast": "gradient as it is reduced",
    "reduced": "reduced gradient",
    "optimizer": "optimizer state",
    "updated": "parameter after the update",
}


def marks_of(view: Numerics) -> dict[int, Mark]:
    """How each rank's numbers are: the gravest thing that is said of it."""
    named: dict[int, Mark] = {}
    for finding in sorted(view.findings, key=lambda each: SEVERITIES.index(each.severity)):
        bad = finding.kind.startswith("nonfinite-")
        for rank in finding.ranks:
            named[rank] = ORIGIN if bad else OF_KINDS.get(finding.kind, FAR)
    began = ORIGIN in named.values()
    return {row.rank: named.get(row.rank) or _mark(row, began) for row in view.ranks}


def _mark(row: NumericsRow, began_elsewhere: bool) -> Mark:
    newest = next((norm for norm in reversed(row.norms) if norm is not None), None)
    if newest is not None and not math.isfinite(newest):
        return SPOILT if began_elsewhere else BAD
    if row.distance is not None and row.distance >= FAR_DEVIATIONS:
        return FAR
    return BLIND if row.local_norm is None else WELL


ORDER = {"bad": 0, "warn": 1}
"""By tone; what is well, or not seen, comes last."""


def by_trouble(view: Numerics) -> list[NumericsRow]:
    """Where it began on top, then what that has spoilt and what is odd, then the others; of equals
    the lower rank first."""
    marks = marks_of(view)

    def place(row: NumericsRow) -> tuple[bool, int, int]:
        mark = marks[row.rank]
        return mark != ORIGIN, ORDER.get(mark.tone, len(ORDER)), row.rank

    return sorted(view.ranks, key=place)


def span(view: Numerics) -> tuple[float, float] | None:
    """The least and the largest norm of all that is shown, natural logarithms; at least a factor of
    10 apart, so that noise is no mountain. None when there is none above 0."""
    known = [
        math.log(norm)
        for row in view.ranks
        for norm in row.norms
        if norm is not None and math.isfinite(norm) and norm > 0
    ]
    if not known:
        return None
    low, high = min(known), max(known)
    lacking = math.log(10.0) - (high - low)
    return (low - lacking / 2, high + lacking / 2) if lacking > 0 else (low, high)


def course(norms: Sequence[float | None], width: int, between: tuple[float, float] | None) -> str:
    """The newest ``width`` norms as bars on a logarithmic scale that all ranks share.

    ``✗`` where one is not finite, a blank where none is known, ``_`` for exactly 0.
    """
    shown = list(norms)[-width:] if width > 0 else []
    low, high = between or (0.0, 1.0)
    return "".join(_bar(norm, low, high) for norm in shown).rjust(max(0, width))


def _bar(norm: float | None, low: float, high: float) -> str:
    if norm is None:
        return " "
    if not math.isfinite(norm):
        return "✗"
    if norm <= 0:
        return "_"
    level = (math.log(norm) - low) / (high - low) * (len(BARS) - 1)
    return BARS[max(0, min(len(BARS) - 1, round(level)))]


def distance(value: float | None) -> str:
    """``+0.3``: how far from its peers and its past."""
    return numbers.DASH if value is None or not math.isfinite(value) else f"{value:+.1f}"


def sign_text(sign: SignRow) -> str:
    """``rank 3, step 12, microbatch 1: own gradient of blocks.1.mlp.up.weight is nan (1)``."""
    where = f"rank {sign.rank}, step {sign.step}"
    if sign.microbatch:
        where += f", microbatch {sign.microbatch}"
    what = STAGES.get(sign.stage, sign.stage)
    if sign.name:
        what += f" of {sign.name}"
    count = f", {sign.count:,} of it" if sign.count else ""
    more = f", and {sign.others} more names" if sign.others else ""
    note = f" ({sign.note})" if sign.note else ""
    return f"{where}: {what}: {sign.value}{count}{more}{note}"


def replicas_text(view: Numerics) -> str:
    """Whether the replicas were compared, and how that came out."""
    if view.replicas_checked_step is None:
        return "replicas: not compared"
    step = numbers.count(view.replicas_checked_step)
    spoilt = _spoilt_since(view)
    if view.replicas_equal and spoilt is not None and spoilt <= view.replicas_checked_step:
        return (
            f"replicas: alike up to step {step}, but not finite since step {numbers.count(spoilt)}"
        )
    if view.replicas_equal:
        return f"replicas: equal up to step {step}"
    return f"replicas: they differ, compared up to step {step}"


def turns_text(view: Numerics) -> str:
    """Of which ranks not all gradients are read at every step; empty where all are."""
    alike: dict[int, list[int]] = {}
    for row in view.ranks:
        if row.large_every > 1:
            alike.setdefault(row.large_every, []).append(row.rank)
    told = [
        f"at every {every}{'nd' if every == 2 else 'th'}{' step' if at == 0 else ''} on "
        f"{numbers.ranks(ranks)}"
        for at, (every, ranks) in enumerate(sorted(alike.items()))
    ]
    return f"large gradients take turns, read {', '.join(told)}" if told else ""


def _spoilt_since(view: Numerics) -> int | None:
    """Since which step parameters are known not to be finite."""
    steps = [
        finding.step
        for finding in view.findings
        if finding.step is not None
        and finding.kind.startswith("nonfinite")
        and any(UPDATED in text for text in finding.evidence)
    ]
    return min(steps, default=None)
