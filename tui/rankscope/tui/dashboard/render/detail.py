"""Everything known of one rank, as lines."""

import math
from collections.abc import Iterable

from rankscope.protocol.shapes import GroupRow, RankDetail, RankRow
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.age import word_age_s
from rankscope.tui.dashboard.render.grid import TONE_STYLES
from rankscope.tui.dashboard.render.line import (
    BLANK,
    Line,
    Span,
    StyleName,
    clip,
    first_that_fit,
    fit,
    left,
    line,
    paragraph,
)
from rankscope.tui.dashboard.render.nodes import bare_ranks
from rankscope.tui.dashboard.render.numbers import phase_line, step_time_sparkline
from rankscope.tui.dashboard.render.table import Column, columns_that_fit, head_line, row_line
from rankscope.tui.words import numbers, tokens
from rankscope.tui.words.blame import ABSENT, holds_up
from rankscope.tui.words.counting import step_words

NAME_WIDTH = 12
FACTS_FIRST = ("rankscope", "python", "torch", "backend", "cuda", "nccl")


def detail_lines(
    rank: int, detail: RankDetail | None, picture: Picture, width: int, now_t_s: float
) -> list[Line]:
    """``detail`` is None until the hub has answered; the rank's row alone is shown meanwhile."""
    row = picture.rows.get(rank) or (None if detail is None else detail.row)
    if row is None:
        mark = ABSENT
        return [line("  ", Span(f"rank {rank}", "strong"), f"   {mark.glyph} {mark.word}")]
    lines = [_who(row, picture, width), *_now(row, picture, width, now_t_s)]
    if detail is None:
        asking = "no hub is there to ask for more" if picture.unknown else "asking the hub for more"
        return [*lines, BLANK, line("  ", Span(asking, "dim"))]
    lines += _course(detail, width)
    if detail.exception:
        lines += [BLANK, _heading("exception", width), *_traceback(detail.exception, width)]
    if detail.probe_faults:
        lines += [BLANK, _heading("probes that are off", width)]
        size = max(NAME_WIDTH, *map(len, detail.probe_faults)) + 1
        for probe, error in sorted(detail.probe_faults.items()):
            lines += paragraph(Span(probe, "dim"), size, error, width, style="warn")
    lines += [BLANK, _heading("collectives", width), *group_lines(detail.groups, width)]
    lines += [BLANK, _heading("memory", width), *_memory(detail, width)]
    lines += [BLANK, _heading("process", width), *_process(detail, row, width)]
    return lines


def _heading(text: str, width: int) -> Line:
    return line("  ", Span(text, "accent"), " ", Span("─" * max(0, width - len(text) - 5), "dim"))


def _named(name: str, text: str, width: int, style: StyleName = "") -> list[Line]:
    return paragraph(Span(name, "dim"), NAME_WIDTH + 1, text or numbers.DASH, width, style=style)


def _who(row: RankRow, picture: Picture, width: int) -> Line:
    mark = picture.mark(row.rank)
    parts = [
        line("  ", Span(f"rank {row.rank}", "strong")),
        line(Span(f"{mark.glyph} {mark.word}", TONE_STYLES[mark.tone])),
        line(Span("on ", "dim"), row.host or "an unknown host"),
        line(Span("pid ", "dim"), numbers.DASH if row.pid is None else str(row.pid)),
    ]
    if row.local_rank is not None:
        parts.append(line(Span("local rank ", "dim"), str(row.local_rank)))
    parts.append(
        line(Span("attempt ", "dim"), str(picture.status.attempt if picture.status else 0))
    )
    return first_that_fit(parts, width, "   ")


def _now(row: RankRow, picture: Picture, width: int, now_t_s: float) -> list[Line]:
    # The ages of a run that is over say when its hub stopped, not what happened.
    aged = not picture.ended and row.phase != "ended"
    phase = row.phase
    process = row.process + (f", {row.ended}" if row.ended else "")
    link: str = row.link
    heard_s = row.heard_s
    if aged and picture.unknown:
        # That it was last heard so long ago stays true; what it does since, nobody says.
        link = "not known"
        if row.process != "ended":
            phase, process = f"was {phase}", f"was {process}"
        heard_s = None if heard_s is None else heard_s + word_age_s(picture, now_t_s)
    elif aged and row.phase_s is not None:
        phase += f" for {numbers.age(row.phase_s)}"
    if aged and heard_s is not None:
        link += f", heard {numbers.age(heard_s)} ago"
    state = "running" if picture.status is None else picture.status.state
    speeds = picture.ended or (tokens.is_current(row, state) and not picture.unknown)
    loss_bad = row.loss is not None and not math.isfinite(row.loss)
    norm_bad = row.grad_norm is not None and not math.isfinite(row.grad_norm)
    lines = [
        _pairs([("step", step_words(row), False), ("phase", phase, False)], width),
        _pairs(
            [
                (
                    "process",
                    process,
                    row.process in ("stopped",) or row.ended not in ("", "exit 0"),
                ),
                ("link", link, row.link != "up" and row.phase != "ended"),
            ],
            width,
        ),
        _pairs(
            [
                ("loss", numbers.loss(row.loss), loss_bad),
                ("grad norm", numbers.norm(row.grad_norm), norm_bad),
                ("tokens/s", tokens.per_s(row, current=speeds), False),
            ],
            width,
        ),
        _pairs(
            [
                ("microbatch", str(row.microbatch) if row.microbatch else numbers.DASH, False),
                ("dropped", numbers.count(row.dropped), row.dropped > 0),
                ("missed", numbers.count(row.missed), row.missed > 0),
            ],
            width,
        ),
    ]
    for finding in picture.status.findings if picture.status is not None else []:
        if row.rank in finding.ranks:
            lines += _named("finding", f"{finding.kind}: {finding.headline}", width, "warn")
        elif row.rank in finding.victims:
            held = bool(finding.ranks) and not picture.ended and holds_up(finding)
            lines += _named("held up by" if held else "because", finding.headline, width)
    return lines


def _pairs(pairs: list[tuple[str, str, bool]], width: int) -> Line:
    """Names and values in columns a screen apart, so that the eye can go down them."""
    each = max(NAME_WIDTH + 14, min(40, (width - 2) // len(pairs)))
    spans: list[str | Span] = ["  "]
    for index, (name, value, bad) in enumerate(pairs):
        room = each - NAME_WIDTH - 2 if index < len(pairs) - 1 else width
        text = clip(value, max(1, room)) if index < len(pairs) - 1 else value
        spans += [Span(left(name, NAME_WIDTH), "dim"), " ", Span(text, "bad" if bad else "")]
        spans.append(" " * (each - NAME_WIDTH - 1 - len(text)))
    return fit(line(*spans), width)


def _course(detail: RankDetail, width: int) -> list[Line]:
    spark = min(60, width - NAME_WIDTH - 18)
    times = [value for value in detail.step_s_history if math.isfinite(value)]
    newest = numbers.span(times[-1] if times else None)
    return [
        phase_line(detail.phase_s, width),
        fit(
            line(
                "  ",
                Span(left("step time", NAME_WIDTH), "dim"),
                " ",
                Span(step_time_sparkline(detail.step_s_history, spark), "bar"),
                f" {newest:>7}",
            ),
            width,
        ),
    ]


GROUP_COLUMNS: tuple[Column[GroupRow], ...] = (
    Column("group", 18, lambda row: Span(row.description or row.group), to_right=False),
    Column("ranks", 5, lambda row: Span(str(row.size))),
    Column("enqueued", 9, lambda row: Span(_number(row.last_enqueued))),
    Column("started", 9, lambda row: Span(_number(row.last_started))),
    Column("completed", 9, lambda row: Span(_number(row.last_completed))),
    Column("pending", 7, lambda row: _pending(row)),
    Column("backend", 8, lambda row: Span(row.backend, "dim"), to_right=False),
    Column("members", 20, lambda row: Span(bare_ranks(row.ranks, 6), "dim"), to_right=False),
)


def group_lines(groups: Iterable[GroupRow], width: int) -> list[Line]:
    """One process group a line: what was asked for, begun and completed last."""
    rows = sorted(groups, key=lambda group: -group.size)
    if not rows:
        return [line("  ", Span("no process group", "dim"))]
    kept = columns_that_fit(GROUP_COLUMNS, width - 2)
    return [
        line("  ", *head_line(kept)),
        *(fit(line("  ", *row_line(kept, row)), width) for row in rows),
    ]


def _pending(row: GroupRow) -> Span:
    number = max(0, row.last_enqueued - max(row.last_completed, -1))
    return Span(str(number), "warn" if number else "dim")


def _number(sequence: int) -> str:
    return numbers.DASH if sequence < 0 else str(sequence)


def _memory(detail: RankDetail, width: int) -> list[Line]:
    known = {name: value for name, value in detail.memory.items() if value is not None}
    if detail.resident_bytes is not None:
        known.pop("resident_bytes", None)  # an older reading of what stands with the process
    if not known:
        return [line("  ", Span("nothing reported yet", "dim"))]
    lines = []
    items = [
        (name.removesuffix("_bytes").replace("_", " "), numbers.size_bytes(value))
        for name, value in known.items()
    ]
    longest = max(18, *(len(name) for name, _ in items))
    per_line = max(1, (width - 2) // (longest + 12))
    for first in range(0, len(items), per_line):
        parts = [
            line(Span(left(name, longest), "dim"), f"{value:>9}")
            for name, value in items[first : first + per_line]
        ]
        lines.append(fit(line("  ", *first_that_fit(parts, width - 2, "   ")), width))
    return lines


def _process(detail: RankDetail, row: RankRow, width: int) -> list[Line]:
    offset = "not estimated yet"
    if detail.hub_offset_error_s is not None:
        offset = f"known to ±{numbers.span(detail.hub_offset_error_s)}"
    named = [("trainer", f"{detail.trainer} on {detail.device}"), ("clock", offset)]
    if detail.cpu_s is not None:
        named.append(("CPU time", numbers.clock(detail.cpu_s)))
    if detail.resident_bytes is not None:
        named.append(("resident", numbers.size_bytes(detail.resident_bytes)))
    facts = dict(detail.facts)
    named += [(name, facts.pop(name)) for name in FACTS_FIRST if name in facts]
    named += sorted(facts.items())
    # A label is never cut: the column is as wide as the longest of them.
    size = max(NAME_WIDTH, *(len(name) for name, _ in named)) + 1
    lines: list[Line] = []
    for name, text in named:
        lines += paragraph(Span(name, "dim"), size, text or numbers.DASH, width)
    return lines


def _traceback(text: str, width: int) -> list[Line]:
    """The last line first: it says what went wrong."""
    raw = text.rstrip().splitlines()
    last = raw[-1:] if len(raw) > 1 else []
    return [
        *(fit(line("  ", Span(each, "bad")), width) for each in last),
        *(fit(line("  ", Span(each, "dim" if last else "")), width) for each in raw),
    ]
