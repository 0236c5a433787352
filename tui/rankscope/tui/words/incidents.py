"""The incident log as a list of incidents: each with when it opened and whether it has closed."""

import time
from dataclasses import dataclass

from rankscope.protocol.shapes import Incident, Incidents
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import SEVERITIES, Mark, safe


@dataclass(frozen=True)
class Entry:
    """One incident: the newest words on it, and its times on the hub's clock (Unix time)."""

    newest: Incident
    opened_s: float
    closed_s: float | None
    """None while it is open."""

    @property
    def mark(self) -> Mark:
        if self.newest.finding.kind == "command":
            return Mark("▸", "command", "quiet")
        mark = SEVERITIES[self.newest.finding.severity]
        return mark if self.closed_s is None else Mark(mark.glyph, "closed", "quiet")


def entries(log: Incidents) -> list[Entry]:
    """All incidents, the one that opened last on top."""
    opened: dict[str, float] = {}
    closed: dict[str, float | None] = {}
    newest: dict[str, Incident] = {}
    for incident in log.incidents:
        opened.setdefault(incident.id, incident.at_s)
        closed[incident.id] = incident.at_s if incident.event == "closed" else None
        newest[incident.id] = incident
    found = [Entry(newest[id_], opened[id_], closed[id_]) for id_ in newest]
    return sorted(found, key=lambda entry: -entry.opened_s)


def lasted(entry: Entry, now_s: float | None) -> str:
    """``12 s`` of one that is over, ``open 42 s`` of one that is not."""
    if entry.newest.finding.kind == "command" and entry.closed_s is None:
        return "in work"
    if entry.closed_s is not None:
        return numbers.age(entry.closed_s - entry.opened_s)
    if now_s is None:
        return "open"
    return f"open {numbers.age(now_s - entry.opened_s)}"


def clock(at_s: float, now_s: float | None) -> str:
    """The local time; with the day where that is not today's."""
    at, now = time.localtime(at_s), time.localtime(at_s if now_s is None else now_s)
    same = (at.tm_year, at.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M:%S" if same else "%m-%d %H:%M", at)


def searched(entry: Entry) -> str:
    """What a filter's words are looked for in."""
    finding = entry.newest.finding
    state = "open" if entry.closed_s is None else "closed"
    ranks = numbers.ranks(finding.ranks, 64) if finding.ranks else ""
    return f"{finding.kind} {finding.severity} {state} {safe(finding.headline)} {ranks}"
