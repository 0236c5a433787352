"""A finding's evidence: sentences, and lines quoted from a traceback, which keep their shape."""

from collections.abc import Sequence

from rankscope.protocol.shapes import Finding


def quoted(evidence: Sequence[str]) -> list[bool]:
    """Which lines are a traceback's: its indented ones, its first and the one that ends it."""
    found: list[bool] = []
    before = False
    for text in evidence:
        inside = text.startswith((" ", "Traceback (most recent call last)"))
        found.append(inside or before)
        before = inside
    return found


def in_short(finding: Finding, lines: int = 2) -> list[str]:
    """The most telling lines: of a traceback its last frame and the error, else the first ones."""
    of_traceback = quoted(finding.evidence)
    if not any(of_traceback):
        return finding.evidence[:lines]
    end = max(at for at, each in enumerate(of_traceback) if each)
    frames = [at for at in range(end) if finding.evidence[at].lstrip().startswith('File "')]
    start = frames[-1] if frames else max(0, end - lines + 1)
    # The markers below a line of code (Python 3.11) say little and take a line.
    last = [text for text in finding.evidence[start : end + 1] if text.strip(" ^~")]
    return last[:1] + last[1:][-3:]
