"""Who is to blame, who is a victim, who waits: one answer for every view.

A rank's mark is what it says of itself (:func:`~.marks.rank_mark`), changed by what the open
findings say of it.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

from rankscope.protocol.shapes import HANGS, STANDS, Finding, Link, RankRow, Status
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import SEVERITIES, Mark, own_mark
from rankscope.tui.words.nohub import is_no_hub, no_hub

ENDED_STATES = ("finished", "failed")

ABSENT = Mark("◌", "not here yet", "quiet")
WAITING = Mark("◌", "waiting", "warn")
BLAMED = Mark("✗", "to blame", "bad")
UNKNOWN = Mark("?", "unknown", "quiet")
"""Of a rank of which no hub has a current word."""
SUSPECT = replace(SEVERITIES["warning"], word="suspect")


DOES: dict[str, str] = {"nonfinite": "spoils", "replica": "parts from"}
"""What findings of numbers do to their victims, by the first word of their kinds: those go on."""


def holds_up(finding: Finding) -> bool:
    """Whether its victims wait for the culprit."""
    return finding.kind.partition("-")[0] not in DOES


GONE_ON_S = 1.0
"""A phase that began so long after a fault is not the one in which it was."""


def goes_on(row: RankRow, finding: Finding) -> bool:
    """Whether a rank that the finding blames has gone on since: it spoils numbers, say, or a save,
    and trains. What it does at the moment is then nothing of the fault."""
    if row.process != "alive" or row.phase == "ended":
        return False
    if not holds_up(finding):
        return True
    return row.phase_s is not None and row.phase_s + GONE_ON_S < finding.since_s


@dataclass(frozen=True)
class Blame:
    """What the open findings say of ranks."""

    critical: frozenset[int]
    warned: frozenset[int]
    held_up: frozenset[int]
    all_held_up: bool
    """The run stands still: whoever is not to blame waits."""


def blame_of(status: Status) -> Blame:
    held_up = (each.victims for each in status.findings if holds_up(each))
    return Blame(
        critical=_named(status.findings, "critical"),
        warned=_named(status.findings, "warning"),
        held_up=frozenset(chain.from_iterable(held_up)),
        all_held_up=status.state == "stalled",
    )


def mark_of(row: RankRow, blame: Blame) -> Mark:
    """The mark of a rank, which may not have been heard of: while it imports, say."""
    rank = row.rank
    here = row.heard_s is not None or row.pid is not None or row.process != "unknown"
    if not here and rank not in blame.critical and rank not in blame.warned:
        return ABSENT
    return _mark(
        row.process,
        row.phase,
        row.link,
        row.ended,
        row.expecting,
        rank in blame.critical,
        rank in blame.warned,
        blame.all_held_up or rank in blame.held_up,
    )


def marks_of(status: Status) -> dict[int, Mark]:
    """The mark of every rank that was heard of, and of those a finding names."""
    blame = blame_of(status)
    marks = {row.rank: mark_of(row, blame) for row in status.ranks}
    if no_hub(status) is not None:
        return {row.rank: faded(row, marks[row.rank]) for row in status.ranks}
    for rank in blame.critical - marks.keys():
        marks[rank] = BLAMED
    return marks


def faded(row: RankRow, mark: Mark) -> Mark:
    """What is left of ``mark`` where nothing newer is known: that a rank has ended stays true."""
    return mark if row.process == "ended" or row.phase == "ended" else UNKNOWN


def about(finding: Finding, state: str) -> list[tuple[str, str]]:
    """Kind, culprits, victims and age in a few words each: (part, words).

    The parts are ``kind``, ``culprit``, ``victims`` and ``age``; those that do not apply are left
    out.
    """
    # Nothing is wrong with a run that was told to end, or whose hub has gone: its kind would only
    # mislead.
    unnamed = was_interrupted(state, finding) or is_no_hub(finding)
    parts = [] if unnamed else [("kind", finding.kind)]
    if finding.ranks:
        parts.append(("culprit", numbers.ranks(finding.ranks, 4)))
    if finding.victims:
        before, after = did_to_victims(finding, state)
        names = numbers.ranks(finding.victims, 4)
        parts.append(("victims", f"{before} {names} {after}".rstrip()))
    if state not in ENDED_STATES:
        parts.append(("age", f"for {numbers.age(finding.since_s)}"))
    return parts


def did_to_victims(finding: Finding, state: str) -> tuple[str, str]:
    """The words before and after the victims: a run that is over holds nobody up any more."""
    if not finding.ranks:
        return "hit", ""
    if not holds_up(finding):
        return DOES[finding.kind.partition("-")[0]], ""
    if state not in ENDED_STATES:
        return "holds up", ""
    # Who waits for another does so until somebody, or a timeout, ends them all.
    return ("held up", "") if finding.kind in STANDS else ("took", "with it")


def was_interrupted(state: str, finding: Finding | None) -> bool:
    """Whether the run ended since it was told to: there is a reason, but no culprit."""
    return (
        state == "failed"
        and finding is not None
        and finding.severity == "warning"
        and not finding.ranks
    )


def suspicion(state: str, finding: Finding | None) -> Finding | None:
    """``finding``, where it is a notice that may be why the run stands still, and no more."""
    if state != "stalled" or finding is None or finding.kind not in HANGS:
        return None
    return finding if finding.severity == "info" else None


def _named(findings: list[Finding], severity: str) -> frozenset[int]:
    return frozenset(rank for each in findings if each.severity == severity for rank in each.ranks)


@lru_cache(maxsize=4096)
def _mark(
    process: str,
    phase: str,
    link: Link,
    how_ended: str,
    expecting: str,
    critical: bool,
    warned: bool,
    held_up: bool,
) -> Mark:
    own = own_mark(process, phase, link, how_ended, expecting)
    ended = process == "ended" or phase == "ended"
    if critical:
        # What is seen of a process ("SIGKILL", "stopped") says more than that it is to blame.
        if ended:
            return replace(own, glyph="✗", tone="bad")
        return own if own.tone == "bad" else BLAMED
    if ended:
        # Ended by what befell another rank: said, but neither in the sign nor in the colour of
        # the culprit.
        dragged = own.tone == "bad" and held_up
        return replace(own, glyph="■", tone="warn") if dragged else own
    if own.tone in ("bad", "warn"):
        return own
    if warned:
        return SUSPECT
    return WAITING if held_up else own
