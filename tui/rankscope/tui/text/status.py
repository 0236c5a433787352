"""The first screen as text: the same words, in the same order, for a pipe or a log."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from rankscope.protocol.shapes import Finding, Node, Overview, RankRow, Status
from rankscope.tui.text.output import toned, untoned
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import SEVERITIES, rank_mark, safe
from rankscope.tui.words.verdict import verdict

PHASES = ("data", "forward", "backward", "optimizer", "other")
UNWELL = ("bad", "warn")
MAX_NODES = 16
MAX_CELLS = 64
MAX_UNWELL = 16
WIDTH = 80


def status_text(status: Status, overview: Overview) -> list[str]:
    """The run in about twelve lines; more only when there is more to say."""
    return [
        *_head(status, overview),
        *_verdict(status, overview),
        *_numbers(status, overview),
        *_nodes(status, overview),
        *_other_findings(status),
        *_foot(status, overview),
    ]


def _head(status: Status, overview: Overview) -> Iterator[str]:
    parts = [
        f"rankscope  {safe(status.name or status.run)}",
        *_size(status, overview),
        *([f"attempt {status.attempt}"] if status.attempt else []),
        *([f"run {status.run}"] if status.name else []),
    ]
    return _flow(parts, " · ", WIDTH)


def _size(status: Status, overview: Overview) -> list[str]:
    if not status.world_size:
        return ["no rank has joined"]
    return [
        overview.trainer,
        numbers.plural(status.world_size, "rank"),
        numbers.plural(len(overview.nodes), "node"),
        f"up {numbers.clock(overview.up_s)}",
    ]


def _verdict(status: Status, overview: Overview) -> Iterator[str]:
    found = verdict(
        state=status.state,
        finding=status.verdict,
        stalled_s=status.stalled_s,
        step=status.step,
        healthy_s=overview.healthy_s,
        exit_code=status.exit_code,
    )
    head = f"{found.glyph} {found.head}   "
    for at, line in enumerate(_wrap(found.text, len(head)) or [""]):
        yield toned(head, found.tone) + line if at == 0 else " " * len(head) + line
    for more in found.more:
        for line in _wrap(more, 4):
            yield "    " + line
    if status.verdict is not None and status.verdict.next:
        for at, line in enumerate(_wrap(safe(status.verdict.next), 10)):
            yield ("    next  " if at == 0 else " " * 10) + line


def _numbers(status: Status, overview: Overview) -> Iterator[str]:
    if overview.step_s is None and not status.step:
        return
    yield (
        f"  step {numbers.count(status.step)}   {numbers.digits3(overview.steps_per_s)} step/s   "
        f"{numbers.si(overview.tokens_per_s)} tok/s   loss {numbers.loss(overview.loss)}   "
        f"‖g‖ {numbers.norm(overview.grad_norm)}   "
        f"{numbers.span(overview.step_s)} ±{numbers.milliseconds(overview.step_spread_s)}"
    )
    if overview.phase_s:
        shares = [
            f"{name} {numbers.milliseconds(overview.phase_s[name])}"
            for name in PHASES
            if name in overview.phase_s
        ]
        yield f"  phase  {'  '.join(shares)}  ms"


def _nodes(status: Status, overview: Overview) -> Iterator[str]:
    rows = {row.rank: row for row in status.ranks}
    width = max((len(node.host) for node in overview.nodes), default=0)
    for node in overview.nodes[:MAX_NODES]:
        yield from _node(node, rows, min(width, 24))
    if len(overview.nodes) > MAX_NODES:
        yield f"  and {numbers.plural(len(overview.nodes) - MAX_NODES, 'more node')}"


def _node(node: Node, rows: dict[int, RankRow], width: int) -> Iterator[str]:
    tail = f"   peak {numbers.size_bytes(node.memory_peak_bytes)}"
    for gpu in node.gpus[:1]:
        if gpu.utilisation_percent is not None:
            tail += f"   GPU {gpu.utilisation_percent:.0f} %"
        if gpu.temperature_c is not None:
            tail += f"   {gpu.temperature_c:.0f} °C"
    known = [rows[rank] for rank in node.ranks if rank in rows]
    lines = list(_flow(_cells(known), "  ", WIDTH - width - 4 - len(tail)))
    for at, line in enumerate(lines or [""]):
        name = safe(node.host)[:width] if at == 0 else ""
        yield f"  {name:<{width}}  {line}{tail if at == 0 else ''}"


def _cells(rows: list[RankRow]) -> list[str]:
    """One cell a rank; on a node of very many, counts, and cells of those that are unwell."""
    marks = [(row.rank, rank_mark(row)) for row in rows]
    cells = [
        f"{rank} {toned(mark.glyph, mark.tone)}" + (f" {mark.word}" if mark.tone in UNWELL else "")
        for rank, mark in marks
    ]
    if len(cells) <= MAX_CELLS:
        return cells
    unwell = [cell for cell, (_, mark) in zip(cells, marks, strict=True) if mark.tone in UNWELL]
    counts = Counter((mark.glyph, mark.tone) for _, mark in marks)
    summary = [f"{count}× {toned(glyph, tone)}" for (glyph, tone), count in counts.most_common()]
    more = len(unwell) - MAX_UNWELL
    return [*summary, *unwell[:MAX_UNWELL], *([f"and {more} more"] if more > 0 else [])]


def _other_findings(status: Status) -> Iterator[str]:
    others = [finding for finding in status.findings if finding != status.verdict]
    for finding in others:
        yield from _finding_lines(finding)


def _finding_lines(finding: Finding) -> Iterator[str]:
    mark = SEVERITIES[finding.severity]
    head = f"  {mark.glyph} {finding.kind}  "
    for at, line in enumerate(_wrap(safe(finding.headline), len(head))):
        yield toned(head, mark.tone) + line if at == 0 else " " * len(head) + line


def _foot(status: Status, overview: Overview) -> Iterator[str]:
    parts = []
    if status.last_checkpoint is not None:
        verified = "verified" if status.last_checkpoint.verified else "not verified"
        parts.append(f"checkpoint step {numbers.count(status.last_checkpoint.step)} {verified}")
    if overview.data_age_s is not None and status.state not in ("finished", "failed"):
        parts.append(f"heard {numbers.age(overview.data_age_s)} ago")
    if overview.overhead_s_per_step is not None:
        parts.append(f"agent cost {numbers.span(overview.overhead_s_per_step)}/step")
    parts.append(f"dropped {numbers.count(status.dropped)}")
    if overview.bad_frames:
        parts.append(f"bad frames {numbers.count(overview.bad_frames)}")
    if overview.hub_restarts:
        parts.append(f"hub restarts {overview.hub_restarts}")
    off = sorted({probe for row in status.ranks for probe in row.probes_off})
    if off:
        parts.append(f"probes off: {', '.join(map(safe, off))}")
    for line in _flow(parts, "   ", WIDTH - 2):
        yield "  " + line


def _wrap(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, max(20, WIDTH - indent), break_long_words=True)


def _flow(pieces: list[str], gap: str, width: int) -> Iterator[str]:
    """Pieces side by side, as many a line as fit."""
    line = ""
    for piece in pieces:
        joined = f"{line}{gap}{piece}" if line else piece
        if line and len(untoned(joined)) > max(20, width):
            yield line
            joined = piece
        line = joined
    if line:
        yield line
