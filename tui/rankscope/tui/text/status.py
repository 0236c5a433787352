"""The first screen as text: the same words, in the same order, for a pipe or a log."""

import textwrap
import time
from collections import Counter
from collections.abc import Iterator

from rankscope.protocol.shapes import Finding, Node, Overview, Status
from rankscope.tui.text.output import toned, untoned
from rankscope.tui.text.table import clipped
from rankscope.tui.words import numbers
from rankscope.tui.words.advice import advice_lines
from rankscope.tui.words.blame import ENDED_STATES, about, marks_of
from rankscope.tui.words.checkpoints import resumed_text, state_text
from rankscope.tui.words.ending import how_to_end, unkept, what_comes_of_it
from rankscope.tui.words.marks import SEVERITIES, Mark, safe
from rankscope.tui.words.nohub import no_hub
from rankscope.tui.words.stall import advised, standings, unexplained
from rankscope.tui.words.verdict import verdict

PHASES = ("data", "forward", "backward", "optimizer", "other")
UNWELL = ("bad", "warn")
MAX_NODES = 16
MAX_CELLS = 64
MAX_UNWELL = 16
WIDTH = 80


def status_text(status: Status, overview: Overview, width: int = WIDTH) -> list[str]:
    """The run in about twelve lines; more only when there is more to say."""
    return [
        *_head(status, overview, width),
        *_verdict(status, overview, width),
        *_numbers(status, overview, width),
        *_nodes(status, overview, width),
        *_other_findings(status, width),
        *_foot(status, overview, width),
    ]


def _head(status: Status, overview: Overview, width: int) -> Iterator[str]:
    parts = [
        f"rankscope  {safe(status.name or status.run)}",
        *_size(status, overview),
        *([f"attempt {status.attempt}"] if status.attempt else []),
        *([f"run {status.run}"] if status.name else []),
    ]
    return _flow(parts, " · ", width)


def _size(status: Status, overview: Overview) -> list[str]:
    if not status.world_size:
        return ["no rank has joined", *_end(status, overview)]
    over = status.state in ENDED_STATES
    return [
        overview.trainer,
        numbers.plural(status.world_size, "rank"),
        numbers.plural(len(overview.nodes), "node"),
        f"{'ran' if over else 'up'} {numbers.clock(overview.up_s)}",
        *_end(status, overview),
    ]


def _end(status: Status, overview: Overview) -> list[str]:
    """That and when a run ended, and with what."""
    if status.state not in ENDED_STATES:
        return []
    when = ""
    if overview.ended_s is not None:
        when = time.strftime(" %Y-%m-%d %H:%M:%S", time.localtime(overview.ended_s))
    code = [] if status.exit_code is None else [f"exit code {status.exit_code}"]
    return [f"ended{when}", *code]


def _verdict(status: Status, overview: Overview, width: int) -> Iterator[str]:
    found = verdict(
        state=status.state,
        finding=status.verdict,
        stalled_s=status.stalled_s,
        step=status.step,
        healthy_s=overview.healthy_s,
        exit_code=status.exit_code,
        attached=bool(status.ranks),
        stopped=status.stopped,
        ending=status.ending,
        unheard_s=overview.data_age_s,
    )
    head = f"{found.glyph} {found.head}   "
    for at, line in enumerate(_wrap(found.text, len(head), width) or [""]):
        yield toned(head, found.tone) + line if at == 0 else " " * len(head) + line
    for more in (*_about(status), *found.more):
        for line in _wrap(more, 4, width):
            yield "    " + line
    next_ = "" if status.verdict is None else safe(status.verdict.next)
    if unexplained(status):
        next_ = safe(advised(status))
    for at, line in enumerate(advice_lines(next_, max(20, width - 10))):
        yield ("    next  " if at == 0 else " " * 10) + line
    yield from _ending(status, overview, width)


def _ending(status: Status, overview: Overview, width: int) -> Iterator[str]:
    """How a run that hangs is ended."""
    if lost := unkept(status):
        for at, line in enumerate(advice_lines(lost, max(20, width - 10))):
            yield ("    end   " if at == 0 else " " * 10) + line
        return
    how = advice_lines(how_to_end(status, overview), max(20, width - 10))
    more = _wrap(what_comes_of_it(status), 10, width) if how else []
    for at, line in enumerate([*how, *more]):
        yield ("    end   " if at == 0 else " " * 10) + line


def _about(status: Status) -> list[str]:
    """Below the headline: whom it hurts and since when; of a riddle, where each rank stands."""
    if unexplained(status):
        return [each.text for each in standings(status.ranks)]
    finding = status.verdict
    if finding is None or finding.severity == "info":
        return []
    return ["   ".join(words for _, words in about(finding, status.state))]


def _numbers(status: Status, overview: Overview, width: int) -> Iterator[str]:
    if overview.step_s is None and not status.step:
        return
    parts = [
        numbers.plural(status.step, "step"),
        f"{numbers.digits3(overview.steps_per_s)} step/s",
        f"{numbers.si(overview.tokens_per_s)} tok/s",
        f"loss {numbers.loss(overview.loss)}",
        f"‖g‖ {numbers.norm(overview.grad_norm)}",
        numbers.step_time(overview.step_s, overview.step_spread_s).strip(),
    ]
    for line in _flow(parts, "   ", width - 2):
        yield f"  {line}"
    if overview.phase_s:
        shares = [
            f"{name} {numbers.milliseconds(overview.phase_s[name])}"
            for name in PHASES
            if name in overview.phase_s
        ]
        for line in _flow(["phase", *shares, "ms"], "  ", width - 2):
            yield f"  {line}"


def _nodes(status: Status, overview: Overview, width: int) -> Iterator[str]:
    marks = marks_of(status)
    nodes = [node for node in overview.nodes if node.ranks]
    names = max((len(node.host) for node in nodes), default=0)
    for node in nodes[:MAX_NODES]:
        yield from _node(node, marks, min(names, 24), width)
    if len(nodes) > MAX_NODES:
        yield f"  and {numbers.plural(len(nodes) - MAX_NODES, 'more node')}"


def _node(node: Node, marks: dict[int, Mark], names: int, width: int) -> Iterator[str]:
    tail = f"   peak {numbers.size_bytes(node.memory_peak_bytes)}"
    for gpu in node.gpus[:1]:
        if gpu.utilisation_percent is not None:
            tail += f"   GPU {gpu.utilisation_percent:.0f} %"
        if gpu.temperature_c is not None:
            tail += f"   {gpu.temperature_c:.0f} °C"
    known = [(rank, marks[rank]) for rank in node.ranks if rank in marks]
    lines = list(_flow(_cells(known), "  ", width - names - 4 - len(tail)))
    for at, line in enumerate(lines or [""]):
        name = clipped(safe(node.host), names) if at == 0 else ""
        yield f"  {name:<{names}}  {line}{tail if at == 0 else ''}"


def _cells(marks: list[tuple[int, Mark]]) -> list[str]:
    """One cell a rank; on a node of very many, counts, and cells of those that are unwell."""
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


def _other_findings(status: Status, width: int) -> Iterator[str]:
    others = [finding for finding in status.findings if finding != status.verdict]
    for finding in others:
        yield from _finding_lines(finding, width)


def _finding_lines(finding: Finding, width: int) -> Iterator[str]:
    mark = SEVERITIES[finding.severity]
    head = f"  {mark.glyph} {finding.kind}  "
    for at, line in enumerate(_wrap(safe(finding.headline), len(head), width)):
        yield toned(head, mark.tone) + line if at == 0 else " " * len(head) + line


def _foot(status: Status, overview: Overview, width: int) -> Iterator[str]:
    parts = []
    if resumed := resumed_text(status.resumed, status.last_checkpoint):
        parts.append(resumed)
    saved = status.last_checkpoint
    if saved is not None:
        resumed_from = "resumed from " if saved.resumed else ""
        parts.append(
            f"{resumed_from}checkpoint step {numbers.count(saved.step)} {state_text(saved)}"
        )
    if overview.data_age_s is not None and status.state not in ENDED_STATES:
        gone = no_hub(status)
        unknown_s = 0.0 if gone is None else gone.since_s
        parts.append(f"heard {numbers.age(overview.data_age_s + unknown_s)} ago")
    if overview.overhead_s_per_step is not None:
        parts.append(f"agent cost {numbers.span(overview.overhead_s_per_step)}/step")
    parts.append(f"dropped {numbers.count(status.dropped)}")
    if overview.bad_frames:
        parts.append(f"refused frames {numbers.count(overview.bad_frames)}")
    if overview.hub_restarts:
        parts.append(f"hub restarts {overview.hub_restarts}")
    off = sorted({probe for row in status.ranks for probe in row.probes_off})
    if off:
        parts.append(f"probes off: {', '.join(map(safe, off))}")
    for line in _flow(parts, "   ", width - 2):
        yield "  " + line
    if status.control:
        for line in _wrap(safe(status.control), 2, width):
            yield toned(f"  {line}", "warn")
    if status.parity:
        for line in _wrap(safe(status.parity), 2, width):
            yield "  " + line
    if overview.hub_note:
        for line in _wrap(f"hub: {safe(overview.hub_note)}", 2, width):
            yield toned(f"  {line}", "warn")


def _wrap(text: str, indent: int, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, width - indent), break_long_words=True)


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
