"""The findings of a screen's own field."""

from collections.abc import Iterable

from rankscope.protocol.shapes import Finding
from rankscope.tui.dashboard.picture import Picture
from rankscope.tui.dashboard.render.evidence import STYLES
from rankscope.tui.dashboard.render.line import BLANK, Line, Span, line, wrap
from rankscope.tui.words.marks import SEVERITIES, safe


def field_lines(findings: Iterable[Finding], picture: Picture, width: int) -> list[Line]:
    """The findings of one field with their evidence; the verdict's headline is said above."""
    lines: list[Line] = []
    for finding in findings:
        mark, style = SEVERITIES[finding.severity], STYLES[finding.severity]
        verdict = picture.verdict
        # A notice is the verdict of a healthy run, and its head does not tell it.
        if finding.severity == "info" or verdict is None or verdict.headline != finding.headline:
            first, *more = wrap(safe(finding.headline), width - 6, 3) or [""]
            lines.append(line("  ", Span(f"{mark.glyph} {first}", style)))
            lines += [line("    ", Span(text, style)) for text in more]
        for text in finding.evidence:
            lines += [line("    ", each) for each in wrap(safe(text), width - 6, 3)]
    return [*lines, BLANK] if lines else []
