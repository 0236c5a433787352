"""The incident log: a line when a finding opens, a line when it closes."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from rankscope.protocol.pasting import named, words_for
from rankscope.protocol.shapes import Checkpoint, Finding, Incident

SHOWN = 1000
"""The newest entries that the view holds; the file holds all."""

MAX_PENDING = 10_000

ENDINGS = ("rank-dead", "run-interrupted", "exception")
"""Kinds that tell why an attempt ended."""


def incident_id(finding: Finding, attempt: int) -> str:
    """``rank-dead/0/2/13``: kind, attempt, first culprit, step. The same after any restart."""
    rank = finding.ranks[0] if finding.ranks else "-"
    step = "-" if finding.step is None else finding.step
    return f"{finding.kind}/{attempt}/{rank}/{step}"


class Incidents:
    """Turns the findings of each moment into openings and closings. Pure."""

    def __init__(self, entries: Iterable[Incident] = ()) -> None:
        self.shown: list[Incident] = []
        self.count = 0
        """How many there were; one that opens and closes is one."""
        self.open: dict[str, Incident] = {}
        self.commands: dict[str, Incident] = {}
        """Requests of operators of which nothing has come yet."""
        self._began_s: dict[str, float] = {}
        self.saved: Checkpoint | None = None
        """The newest complete checkpoint, which goes into what opens."""
        self.trouble_ended_s: float | None = None
        """When the last finding above ``info`` closed, hub clock."""
        for entry in entries:
            self._take(entry)

    def _take(self, entry: Incident) -> None:
        if entry.event == "opened" and entry.id not in self.open:
            self.count += 1
        self.shown.append(entry)
        del self.shown[:-SHOWN]
        if entry.command is not None:
            if entry.event == "opened":
                self.commands[entry.id] = entry
            else:
                self.commands.pop(entry.id, None)
            return
        if entry.event == "opened":
            self.open[entry.id] = entry
            self._began_s.setdefault(entry.id, entry.at_s - entry.finding.since_s)
        else:
            self.open.pop(entry.id, None)
            self._began_s.pop(entry.id, None)
            if entry.finding.severity != "info":
                self.trouble_ended_s = entry.at_s

    def began_s(self, finding: Finding, attempt: int) -> float | None:
        """When what ``finding`` tells of began (hub clock), as it was known when it was opened;
        None when it is not open."""
        return self._began_s.get(self._known_as(finding, attempt))

    def open_of(self, kind: str, attempt: int) -> Finding | None:
        """An open entry's finding of this kind."""
        for entry in self.open.values():
            if entry.finding.kind == kind and entry.attempt == attempt:
                return entry.finding
        return None

    def observe(self, findings: list[Finding], attempt: int, now_s: float) -> list[Incident]:
        """What is open at ``now_s``; the new entries, closings first."""
        present: dict[str, Finding] = {}
        for finding in findings:
            present.setdefault(self._known_as(finding, attempt), finding)
        new = []
        for known, entry in list(self.open.items()):
            if known not in present:
                new.append(
                    Incident(
                        id=known,
                        event="closed",
                        at_s=now_s,
                        attempt=entry.attempt,
                        finding=entry.finding,
                        last_checkpoint=entry.last_checkpoint,
                    )
                )
        for id_, finding in present.items():
            entry_ = self.open.get(id_)
            if entry_ is None:
                new.append(self._opened(id_, finding, attempt, now_s))
                continue
            # What is known of it may grow; the line that closes it tells the last of it.
            before = entry_.finding
            self.open[id_] = msgspec.structs.replace(entry_, finding=finding)
            counts = before.severity == "info" and finding.severity != "info"
            # A mere notice was opened: the log must say that it became one that counts. So it must
            # where the words that a rank said before its end came after the news of that, and a
            # launcher's, which tells what it was ended by.
            if counts or (finding.kind in ENDINGS and _ended_otherwise(before, finding)):
                new.append(self._opened(id_, finding, attempt, now_s))
        for entry in new:
            self._take(entry)
        return new

    def _known_as(self, finding: Finding, attempt: int) -> str:
        """The id under which it is open, or will be. A rank ends once, in whichever step: its last
        steps may be told after its end was, and so may others that died by the same hand."""
        id_ = incident_id(finding, attempt)
        if id_ in self.open or finding.kind not in ENDINGS:
            return id_
        whose = id_.rpartition("/")[0]
        for known, entry in self.open.items():
            same = (entry.finding.kind, entry.attempt) == (finding.kind, attempt)
            shared = same and not set(finding.ranks).isdisjoint(entry.finding.ranks)
            if shared or known.rpartition("/")[0] == whose:
                return known
        return id_

    def _opened(self, id_: str, finding: Finding, attempt: int, now_s: float) -> Incident:
        return Incident(
            id=id_,
            event="opened",
            at_s=now_s,
            attempt=attempt,
            finding=finding,
            last_checkpoint=self.saved,
        )

    def commanded(self, entry: Incident) -> list[Incident]:
        """A command was given, or something came of one: as new entries, unless that is known."""
        if entry.event == "opened":
            known = any(one.id == entry.id for one in reversed(self.shown))
        else:
            known = entry.id not in self.commands
        if known:
            return []
        self._take(entry)
        return [entry]

    def past(self, finding: Finding, attempt: int, now_s: float) -> list[Incident]:
        """Entries for an end in an attempt that is over.

        None when the log says already why that attempt ended: this is then known, or a
        consequence. A sentinel repeats what it saw to a hub that was restarted.
        """
        if any(entry.attempt == attempt and entry.finding.kind in ENDINGS for entry in self.shown):
            return []
        entries = self._passed(incident_id(finding, attempt), finding, attempt, now_s)
        for entry in entries:
            self._take(entry)
        return entries

    def once(self, finding: Finding, attempt: int, now_s: float) -> list[Incident]:
        """Entries for what is merely to be kept, opened and closed at once; none when the log has
        it."""
        return self.kept(self._passed(incident_id(finding, attempt), finding, attempt, now_s))

    def kept(self, entries: list[Incident]) -> list[Incident]:
        """``entries`` of one thing that is over, as new ones; none when the log has them."""
        if any(entry.id == entries[0].id for entry in self.shown):
            return []
        for entry in entries:
            self._take(entry)
        return entries

    @staticmethod
    def _passed(id_: str, finding: Finding, attempt: int, now_s: float) -> list[Incident]:
        """Entries that open and close it at once."""
        return [
            Incident(id=id_, event="opened", at_s=now_s, attempt=attempt, finding=finding),
            Incident(id=id_, event="closed", at_s=now_s, attempt=attempt, finding=finding),
        ]

    def healthy_s(
        self, first_heard_s: float | None, blind: Iterable[tuple[float, float]], now_s: float
    ) -> float | None:
        """Seconds without a finding above ``info``; None while there is one or nobody is there.

        ``blind``: from when to when nobody looked (hub clock): that is no such time.
        """
        if first_heard_s is None:
            return None
        if any(entry.finding.severity != "info" for entry in self.open.values()):
            return None
        since_s = max(first_heard_s, self.trouble_ended_s or 0.0)
        gaps_s = (min(until_s, now_s) - max(from_s, since_s) for from_s, until_s in blind)
        blind_s = sum(gap_s for gap_s in gaps_s if gap_s > 0)
        return max(0.0, now_s - since_s - blind_s)


def _ended_otherwise(before: Finding, finding: Finding) -> bool:
    """Whether it is told now that other ranks ended, in another step, or by another signal."""
    if finding.kind == "run-interrupted" and finding.headline != before.headline:
        return True
    return (finding.step, finding.ranks) != (before.step, before.ranks)


def read(path: Path) -> list[Incident]:
    """The entries in a log; lines that were cut off or damaged are passed over."""
    entries = []
    try:
        raw = path.read_bytes()
    except OSError:
        return []
    for line in raw.splitlines():
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            entries.append(msgspec.json.decode(line, type=Incident))
    return entries


def _naming(entry: Incident, words: str) -> Incident:
    """``entry`` with its next step, and commands in its evidence, naming the run."""
    finding = entry.finding
    step, evidence = named(finding.next, words), [named(one, words) for one in finding.evidence]
    if (step, evidence) == (finding.next, finding.evidence):
        return entry
    finding = msgspec.structs.replace(finding, next=step, evidence=evidence)
    return msgspec.structs.replace(entry, finding=finding)


class IncidentFile:
    """Appends to ``incidents.jsonl``. What the disk does not take is tried again later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""
        self._pending: list[bytes] = []
        self._torn = True
        """Whether the file may end in half a line: true until it was looked at."""

    def append(self, entries: list[Incident]) -> None:
        if entries:
            words = words_for(self.path.parent)  # who reads the file is told the run, too
            self._pending.extend(
                msgspec.json.encode(_naming(entry, words)) + b"\n" for entry in entries
            )
            del self._pending[:-MAX_PENDING]
        self.flush()

    def flush(self) -> None:
        """Try to write what is pending. Never raises."""
        if not self._pending:
            return
        try:
            descriptor = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            try:
                self._write(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.trouble = f"cannot write {self.path}: {error.strerror}"
            self._torn = True
        else:
            self.trouble = ""

    def _write(self, descriptor: int) -> None:
        if self._torn:
            size = os.lseek(descriptor, 0, os.SEEK_END)
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                os.write(descriptor, b"\n")
            self._torn = False
        while self._pending:
            line = self._pending[0]
            if os.write(descriptor, line) != len(line):
                self._torn = True
                raise OSError(28, "No space left on device")
            del self._pending[0]
