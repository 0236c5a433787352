"""A finding in full: what, who, since when, on what evidence, and what to do next."""

from collections.abc import Sequence

from rankscope.protocol.shapes import Finding
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.line import BLANK, Line, Span, StyleName, fit, line, paragraph
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import SEVERITIES

NAME_WIDTH = 10
STYLES: dict[str, StyleName] = {"info": "dim", "warning": "warn", "critical": "bad"}


def evidence_lines(picture: Picture, width: int) -> list[Line]:
    """All open findings, the verdict first."""
    if picture.status is None:
        return []
    findings = picture.findings
    if not findings:
        return _nothing(picture, width)
    lines: list[Line] = []
    for index, finding in enumerate(findings):
        lines += [BLANK] if index else []
        lines += finding_lines(finding, picture, width)
    return lines


def short_evidence(verdict: Finding, others: Sequence[Finding], width: int) -> list[Line]:
    """The evidence of the verdict and the headlines of the other findings, a line each."""
    lines: list[Line] = []
    for index, text in enumerate(verdict.evidence):
        lines += _named("evidence" if index == 0 else "", f"· {text}", width)
    for index, finding in enumerate(others):
        mark = SEVERITIES[finding.severity]
        text = f"{mark.glyph} {finding.kind}: {finding.headline}"
        lines += _named("also" if index == 0 else "", text, width)
    return lines


def _nothing(picture: Picture, width: int) -> list[Line]:
    status, overview = picture.status, picture.overview
    text = "no open finding"
    if status is not None and status.state == "stalled":
        text = "no rank moves, and no cause was found yet"
    elif picture.ended:
        text = "no finding was open at the end"
    lines = [line("  ", text)]
    if overview is not None and overview.incidents:
        count = numbers.plural(overview.incidents, "entry").replace("entrys", "entries")
        lines.append(line("  ", Span(f"the incident log has {count}: rankscope incidents", "dim")))
    return [fit(each, width) for each in lines]


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
        lines += _named("holds up", _ranks(finding.victims, ""), width)
    if finding.step is not None:
        lines += _named("at step", numbers.count(finding.step), width)
    ago = "" if picture.ended else " ago"
    since = "as the run ended" if picture.ended else f"{numbers.age(finding.since_s)}{ago}"
    lines += _named("since", since, width)
    for name, value in finding.where.items():
        lines += _named(name, str(value), width)
    for index, text in enumerate(finding.evidence):
        lines += _named("evidence" if index == 0 else "", f"· {text}", width)
    if finding.next:
        lines += _named("next", finding.next, width, "accent")
    return lines


def _ranks(ranks: list[int], nobody: str) -> str:
    return numbers.ranks(ranks, 16) if ranks else nobody


def _named(name: str, text: str, width: int, style: StyleName = "") -> list[Line]:
    return paragraph(Span(name, "dim"), NAME_WIDTH, text, width, style=style, max_lines=12)
