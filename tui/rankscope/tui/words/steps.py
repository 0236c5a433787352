"""What is said of steps over time: odd ones, late ranks, and how dark a cell of the heat map is."""

from collections.abc import Mapping, Sequence
from typing import Literal

from rankscope.protocol.shapes import StepAnomaly, StepsRow, StepsView
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import Mark, Tone

Shade = Literal["unknown", "none", "some", "much", "grave"]

SHADES: tuple[tuple[int, str, Tone, str], ...] = (
    (5, "·", "quiet", "on time"),
    (15, "░", "warn", "5 %"),
    (40, "▒", "warn", "15 %"),
    (1 << 30, "▓", "bad", "40 %"),
)
"""Up to which percent of the step each glyph stands, its tone, and from where on it begins."""
UNKNOWN = " "
NO_MARKS: Mapping[int, Mark] = {}
ON_TIME = Mark("●", "on time", "good")
NOT_COMPARED = Mark("◌", "not compared", "quiet")
"""With nobody, or over too few steps yet."""


def shade(percent: int | None) -> tuple[str, Tone]:
    """Glyph and tone for work of ``percent`` of the step beyond the usual."""
    if percent is None:
        return UNKNOWN, "quiet"
    for most, glyph, tone, _ in SHADES:
        if percent < most:
            return glyph, tone
    return SHADES[-1][1], SHADES[-1][2]


def legend() -> str:
    """``a cell is a step: · on time, late by ░ 5 % ▒ 15 % ▓ 40 % of it or more``."""
    (_, on_time, _, word), *late = SHADES
    steps = "  ".join(f"{glyph} {name}" for _, glyph, _, name in late)
    return f"a cell is a step: {on_time} {word}, late by  {steps}  of it or more"


def anomaly_text(odd: StepAnomaly) -> str:
    """``step 12 472 took 363 ms, usual 163 ms``."""
    step = f"step {numbers.count(odd.step)}"
    match odd.what:
        case "slow step":
            return f"{step} took {numbers.span(odd.value)}, usual {numbers.span(odd.usual)}"
        case "loss not finite":
            told = f"{step}: loss {numbers.loss(odd.value)}"
            if odd.began_step is None or odd.began_step == odd.step:
                return told
            return f"{told}, from what began in step {numbers.count(odd.began_step)}: see numerics"
        case _:
            return f"{step}: loss {numbers.loss(odd.value)}, usual {numbers.loss(odd.usual)}"


def anomaly_mark(odd: StepAnomaly) -> Mark:
    if odd.what == "loss not finite":
        return Mark("✗", odd.what, "bad")
    return Mark("!", odd.what, "warn")


def keeps_no_pace(mark: Mark, state: str) -> bool:
    """Whether a rank with this mark, in a run in this state, is neither on time nor late."""
    return mark.tone == "bad" or (state == "stalled" and mark.tone == "warn")


def mark_of(row: StepsRow, of_rank: Mark | None = None) -> Mark:
    """How a rank keeps pace: ``late in data 33×``.

    ``of_rank``: what the rank itself is, where that is said in place of its pace.
    """
    if of_rank is not None:
        return of_rank
    if row.work_s is None:
        return Mark("◌", "not known", "quiet")
    if row.late_s is None:
        return NOT_COMPARED
    if not row.phase:
        return ON_TIME
    where = "outside training" if row.phase == "other" else f"in {row.phase}"
    return Mark("!", f"late {where} {factor(row.factor)}".rstrip(), "warn")


def factor(value: float | None) -> str:
    """``1.8×``, ``33×``, ``>99×``."""
    if value is None:
        return ""
    if value > 99:  # beside next to nothing everything is many times as much
        return ">99×"
    return f"{value:.1f}×" if value < 9.95 else f"{value:.0f}×"


def by_lateness(view: StepsView, marks: Mapping[int, Mark] = NO_MARKS) -> list[StepsRow]:
    """Ranks in trouble on top, then the late ones, those that lose most first; then the others by
    number. ``marks``: what the ranks themselves are, beside their pace."""

    def place(row: StepsRow) -> tuple[bool, bool, float, int]:
        in_trouble = row.rank in marks and marks[row.rank].tone == "bad"
        return (not in_trouble, not row.phase, -(row.late_s or 0.0) * bool(row.phase), row.rank)

    return sorted(view.ranks, key=place)


def known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def span(first: int, last: int, width: int) -> str:
    """``steps 4–272`` as it fits in ``width`` cells; a number is never cut."""
    numbers_alone = f"{first}–{last}"
    forms = (f"steps {numbers_alone}", numbers_alone)
    return next((form for form in forms if len(form) <= width), "")
