"""The incident log as text."""

import textwrap
import time

from rankscope.protocol.pasting import named
from rankscope.protocol.shapes import Incident, Incidents, Status
from rankscope.tui.text.output import toned
from rankscope.tui.words import numbers
from rankscope.tui.words.advice import advice_lines
from rankscope.tui.words.blame import suspicion
from rankscope.tui.words.marks import SEVERITIES, safe
from rankscope.tui.words.stall import unexplained


def incidents_text(log: Incidents, status: Status | None = None, run_words: str = "") -> list[str]:
    """Two lines and more for each incident, oldest first; times are local.

    A run that stands still unexplained has no incident, and must not look well for that.
    ``run_words`` are what a command names the run with.
    """
    lines = [line for incident in log.incidents for line in _one(incident)]
    if status is not None and unexplained(status):
        suspected = suspicion(status.state, status.verdict)
        why = "nothing explains it"
        if suspected is not None:
            why = f"suspected is: {safe(suspected.headline)}"
        text = f"the run is stalled for {numbers.age(status.stalled_s)} and {why}"
        lines += advice_lines(named(f"{text}: rankscope status", run_words), 80)
    return lines or ["no incident so far"]


def _one(incident: Incident) -> list[str]:
    finding = incident.finding
    mark = SEVERITIES[finding.severity]
    closed = incident.event == "closed"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(incident.at_s))
    head = f"{mark.glyph} {finding.kind}"
    first = f"{when}  {incident.event:<6}  {toned(head, 'quiet' if closed else mark.tone)}"
    indent = " " * 4
    lines = textwrap.wrap(safe(finding.headline), 76)
    if not closed:
        lines += [part for text in finding.evidence for part in textwrap.wrap(safe(text), 76)]
        if finding.next:
            lines += advice_lines(f"next: {safe(finding.next)}", 76)
    return [first, *(indent + line for line in lines)]
