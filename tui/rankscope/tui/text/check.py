"""Whether a run is healthy, in one line and one bit."""

from rankscope.protocol.exits import Exit
from rankscope.protocol.shapes import Finding, Status
from rankscope.tui.text.output import toned
from rankscope.tui.words.marks import SEVERITIES, safe
from rankscope.tui.words.nohub import HEAD, last_known, no_hub, since_when
from rankscope.tui.words.verdict import verdict


def judge(status: Status) -> Exit:
    """A problem is a finding above ``info``, or a run that failed or does not move."""
    grave = any(finding.severity != "info" for finding in status.findings)
    if grave or status.state in ("failed", "stalled"):
        return Exit.PROBLEM
    return Exit.FINE


def check_line(status: Status) -> list[str]:
    gone = no_hub(status)
    if gone is not None:
        return [_unknown(status, gone)]
    heard = (row.heard_s for row in status.ranks if row.phase != "ended")
    found = verdict(
        state=status.state,
        finding=status.verdict,
        stalled_s=status.stalled_s,
        step=status.step,
        exit_code=status.exit_code,
        attached=bool(status.ranks),
        stopped=status.stopped,
        ending=status.ending,
        unheard_s=min((age_s for age_s in heard if age_s is not None), default=None),
    )
    return [f"{toned(f'{found.glyph} {found.head}', found.tone)}   {found.text}  ({status.run})"]


def _unknown(status: Status, gone: Finding) -> str:
    """Since when nothing is known, what was found last, and how to have a hub again."""
    mark = SEVERITIES[gone.severity]
    words = [since_when(gone)]
    before = last_known(status)
    if before is not None and before.severity != "info":
        words.append(f"last known: {before.kind.upper()} {safe(before.headline)}")
    words.append(safe(gone.next.partition("; ")[0]))
    head = toned(f"{mark.glyph} {HEAD}", mark.tone)
    return f"{head}   {'; '.join(words)}  ({status.run})"
