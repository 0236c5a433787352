"""Whether a run is healthy, in one line and one bit."""

from rankscope.protocol.exits import Exit
from rankscope.protocol.shapes import Status
from rankscope.tui.text.output import toned
from rankscope.tui.words.verdict import verdict


def judge(status: Status) -> Exit:
    """A problem is a finding above ``info``, or a run that failed or does not move."""
    grave = any(finding.severity != "info" for finding in status.findings)
    if grave or status.state in ("failed", "stalled"):
        return Exit.PROBLEM
    return Exit.FINE


def check_line(status: Status) -> list[str]:
    found = verdict(
        state=status.state,
        finding=status.verdict,
        stalled_s=status.stalled_s,
        step=status.step,
        exit_code=status.exit_code,
        attached=bool(status.ranks),
        stopped=status.stopped,
    )
    return [f"{toned(f'{found.glyph} {found.head}', found.tone)}   {found.text}  ({status.run})"]
