"""A finding in full: what, who, since when, on what evidence, and what to do next."""

from collections.abc import Sequence

from rankscope.protocol.shapes import Finding, Status
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.advice import advice
from rankscope.tui.dashboard.render.age import as_of
from rankscope.tui.dashboard.render.line import (
    BLANK,
    Line,
    Span,
    StyleName,
    fit,
    left,
    line,
    paragraph,
)
from rankscope.tui.words import numbers
from rankscope.tui.words.blame import did_to_victims
from rankscope.tui.words.ending import how_to_end, what_comes_of_it
from rankscope.tui.words.evidence import quoted
from rankscope.tui.words.marks import SEVERITIES
from rankscope.tui.words.nohub import no_hub
from rankscope.tui.words.stall import advised, standings, unexplained

NAME_WIDTH = 12
STYLES: dict[str, StyleName] = {"info": "dim", "warning": "warn", "critical": "bad"}


def evidence_lines(picture: Picture, width: int) -> list[Line]:
    """All open findings, the verdict first."""
    if picture.status is None:
        return []
    findings = picture.findings
    if not findings:
        return _nothing(picture, width)
    lines = stall_lines(picture.status, width) if unexplained(picture.status) else []
    lines += _end(picture, width) if lines else []
    for finding in findings:
        told = bool(lines)
        lines += [BLANK] if told else []
        lines += finding_lines(finding, picture, width)
        lines += [] if told else _end(picture, width)
    return lines


def _end(picture: Picture, width: int) -> list[Line]:
    """How a run that hangs now is ended."""
    if picture.unknown or picture.stands_still or picture.snapshot.replay:
        return []
    how = how_to_end(picture.status, picture.overview)
    if not how or picture.status is None:
        return []
    lines = advice(Span("end", "dim"), NAME_WIDTH, how, width)
    return lines + _named("", what_comes_of_it(picture.status), width)


def short_evidence(verdict: Finding, others: Sequence[Finding], width: int) -> list[Line]:
    """The evidence of the verdict and the headlines of the other findings, a line each."""
    lines: list[Line] = []
    lines += _evidence(verdict, width)
    for index, finding in enumerate(others):
        mark = SEVERITIES[finding.severity]
        text = f"{mark.glyph} {finding.kind}: {finding.headline}"
        lines += _named("also" if index == 0 else "", text, width)
    return lines


def _nothing(picture: Picture, width: int) -> list[Line]:
    status = picture.status
    text = "no open finding"
    if status is not None and unexplained(status):
        return [*stall_lines(status, width), *_end(picture, width), *_log_line(picture, width)]
    if status is not None and status.state == "stalled":
        text = "no rank moves, and no cause was found yet"
    elif picture.ended:
        text = "no finding was open at the end"
    return [fit(line("  ", text), width), *_log_line(picture, width)]


def _log_line(picture: Picture, width: int) -> list[Line]:
    overview = picture.overview
    if overview is None or not overview.incidents:
        return []
    count = numbers.plural(overview.incidents, "entry").replace("entrys", "entries")
    text = f"the incident log has {count}: 7 shows it"
    return [fit(line("  ", Span(text, "dim")), width)]


def stall_lines(status: Status, width: int) -> list[Line]:
    """Where the ranks of a run stand that does not move, when nothing found explains it."""
    lines = _named("stalled", "no rank moves, and no cause was found yet", width, "strong")
    for index, each in enumerate(standings(status.ranks)):
        lines += _named("" if index else "where", f"· {each.text}", width)
    return lines + _next(advised(status), width)


def _state(picture: Picture) -> str:
    return "" if picture.status is None else picture.status.state


def _evidence(finding: Finding, width: int) -> list[Line]:
    """A sentence a paragraph; a traceback as it was printed."""
    lines: list[Line] = []
    for text, of_traceback in zip(finding.evidence, quoted(finding.evidence), strict=True):
        name = "" if lines else "evidence"
        if of_traceback:
            head = Span(left(name, NAME_WIDTH), "dim")
            lines.append(fit(line("  ", head, "  ", text), width))
        else:
            lines += _named(name, f"· {text}", width)
    return lines


def finding_lines(finding: Finding, picture: Picture, width: int) -> list[Line]:
    mark = SEVERITIES[finding.severity]
    head = f"{mark.glyph} {finding.kind}"
    lines = [
        fit(
            line("  ", Span(head, STYLES[finding.severity]), Span(f"   {mark.word}", "dim")), width
        ),
        *_named("what", finding.headline, width, "strong"),
        *_named("culprit", _ranks(finding.ranks, "none is to blame"), width),
    ]
    if finding.victims:
        before, after = did_to_victims(finding, _state(picture))
        lines += _named("took along" if after else before, _ranks(finding.victims, ""), width)
    if finding.step is not None:
        lines += _named("at step", numbers.count(finding.step), width)
    since = "as the run ended" if picture.ended else f"{numbers.age(finding.since_s)} ago"
    if picture.unknown and picture.status is not None and finding is not no_hub(picture.status):
        since = f"{numbers.age(finding.since_s)}, {as_of(picture)}"
    lines += _named("since", since, width)
    for name, value in finding.where.items():
        lines += _named(name, str(value), width)
    lines += _evidence(finding, width)
    return lines + _next(finding.next, width)


def _next(step: str, width: int) -> list[Line]:
    return advice(Span("next", "dim"), NAME_WIDTH, step, width)


def _ranks(ranks: list[int], nobody: str) -> str:
    return numbers.ranks(ranks, 16) if ranks else nobody


def _named(name: str, text: str, width: int, style: StyleName = "") -> list[Line]:
    return paragraph(Span(name, "dim"), NAME_WIDTH, text, width, style=style, max_lines=12)
