"""The incident log as text."""

import textwrap
import time

from rankscope.protocol.shapes import Incident, Incidents
from rankscope.tui.text.output import toned
from rankscope.tui.words.marks import SEVERITIES, safe


def incidents_text(log: Incidents) -> list[str]:
    """Two lines and more for each incident, oldest first; times are local."""
    if not log.incidents:
        return ["no incident so far"]
    return [line for incident in log.incidents for line in _one(incident)]


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
            lines += textwrap.wrap(f"next: {safe(finding.next)}", 76)
    return [first, *(indent + line for line in lines)]
