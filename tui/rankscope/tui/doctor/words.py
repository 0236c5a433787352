"""The doctor's findings as text."""

import textwrap
from collections.abc import Iterator, Sequence

from rankscope.tui.doctor.check import Check
from rankscope.tui.text.output import toned
from rankscope.tui.words.marks import safe


def findings_text(checks: Sequence[Check]) -> list[str]:
    """One line a check, and one below it that says what to do where something is missing."""
    width = max(len(check.name) for check in checks)
    lines = [line for check in checks for line in _lines(check, width)]
    bad = sum(not check.works and check.essential for check in checks)
    missing = sum(not check.works and not check.essential for check in checks)
    if bad:
        last = f"{bad} to mend before rankscope can work here"
    elif missing:
        verb = "does" if missing == 1 else "do"
        last = f"rankscope works here; {missing} of its extras {verb} not"
    else:
        last = "everything works here"
    return [*lines, last]


def _lines(check: Check, width: int) -> Iterator[str]:
    if check.works:
        mark = toned("✓", "good")
    elif check.essential:
        mark = toned("✗", "bad")
    else:
        mark = toned("–", "warn")
    indent = " " * (width + 4)
    said = textwrap.wrap(safe(check.says), 80 - len(indent)) or [""]
    yield f"{mark} {check.name:<{width}}  {said[0]}"
    for line in said[1:]:
        yield indent + line
    if check.do and not check.works:
        for at, line in enumerate(textwrap.wrap(safe(check.do), 80 - len(indent) - 2)):
            yield f"{indent}{'  ' if at else '→ '}{line}"
