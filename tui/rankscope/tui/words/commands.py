"""What a command will do, said before it is given."""

from rankscope.protocol.shapes import HANGS, STANDS, Finding, Overview, Status
from rankscope.tui.words import numbers
from rankscope.tui.words.checkpoints import holds, instead
from rankscope.tui.words.ending import hangs, how_to_end
from rankscope.tui.words.marks import safe

QUESTIONS: dict[str, str] = {
    "checkpoint": "Save a checkpoint now?",
    "checkpoint-and-stop": "Save a checkpoint, then stop the run?",
    "pause": "Pause the run?",
    "resume": "Resume the run?",
    "stop": "Stop the run without saving?",
    "cancel": "Give up the command that is in work?",
    "unlock": "Unlock commands on this run?",
}
STEPS_AHEAD = 2
"""The ranks agree on one of the next boundaries."""


def consequences(name: str, status: Status | None, overview: Overview | None = None) -> list[str]:
    """In sentences: which ranks, at which step roughly, what stops, what is lost; of a run that
    hangs, how it is ended (``overview`` tells who started it)."""
    if name == "unlock":
        return [
            "Then c, C, P, R, S and X may command this run, each after a question of its own. "
            "Nothing is sent now; u locks them again.",
        ]
    hindered = _hindered(name, status)
    if hindered:
        end = how_to_end(status, overview)
        return [*hindered, *([f"A run that hangs is ended from outside: {end}."] if end else [])]
    if status is not None and status.state == "paused" and name in STANDING:
        return [*_standing(name, status), *spoilt(name, status)]
    return [*_going(name, status), *spoilt(name, status)]


def _going(name: str, status: Status | None) -> list[str]:
    """What comes of ``name`` on a run whose ranks train."""
    who, step = _who(status), _about(status)
    match name:
        case "checkpoint":
            return [
                f"{who} save at the same step, about step {step}, and train on. They are held for "
                "at most 2 s while they agree, and for as long as copying their state takes.",
                "Nothing stops. The newest checkpoint stays the newest until this one is verified.",
            ]
        case "checkpoint-and-stop":
            return [
                f"{who} save at the same step, about step {step}. Once that checkpoint is verified "
                "they end their loop, and the run is over.",
                "If the save fails the run goes on.",
            ]
        case "stop":
            return [
                f"{who} end their loop at the same step, about step {step}. {_lost(status)}",
                "A loop that does not look at agent.should_stop goes on.",
            ]
        case "pause":
            return [
                f"{who} wait at the same step, about step {step}, and keep their memory and their "
                "GPUs. It ends after 30 min by itself, or with R.",
            ]
        case "resume":
            return [f"{who} go on from where they wait."]
        case "cancel":
            return [_in_work(status)]
        case _:
            return []


STANDING = ("checkpoint", "checkpoint-and-stop", "stop")
"""Commands that ranks in a pause follow where they stand."""
SAVING = ("checkpoint", "checkpoint-and-stop")


def in_short(name: str, status: Status | None) -> str:
    """What comes of ``name`` in a pause, in a line; empty where it is as ever."""
    if status is None or status.state != "paused":
        return ""
    return {
        "checkpoint": "All ranks save where they stand, and stay paused.",
        "checkpoint-and-stop": "All ranks save where they stand, and stop once it is there.",
        "stop": "All ranks stop where they stand, without saving.",
    }.get(name, "")


def _standing(name: str, status: Status) -> list[str]:
    """What comes of ``name`` on a run that is paused."""
    who, here = _who(status), f"where they stand, after step {numbers.count(status.step)}"
    if name == "checkpoint":
        return [
            f"{who} save {here}, and stay paused.",
            "The newest checkpoint stays the newest until this one is verified.",
        ]
    if name == "stop":
        return [
            f"{who} end their loop {here}. {_lost(status)}",
            "A loop that does not look at agent.should_stop goes on.",
        ]
    return [
        f"{who} save {here}. Once that checkpoint is verified they end their loop, and the run is "
        "over.",
        "If the save fails they stay paused.",
    ]


UPDATED = "parameters after the update on "


def spoilt(name: str, status: Status | None) -> list[str]:
    """That a checkpoint made now would hold numbers that are not finite; empty where none are
    known of."""
    if status is None or name not in SAVING:
        return []
    for finding in status.findings:
        if finding.kind.startswith("nonfinite") and finding.severity == "critical":
            return [_holds(finding, status)]
    return []


def _holds(finding: Finding, status: Status) -> str:
    since = "" if finding.step is None else f" since step {numbers.count(finding.step)}"
    parts = [part for text in finding.evidence for part in text.split("; ") if UPDATED in part]
    if parts:
        where = parts[0].partition(UPDATED)[2]
        told = f"Parameters are not finite on {where}{since}: this checkpoint will hold them"
    else:
        told = f"Numbers are not finite{since}: this checkpoint may hold them"
    last = status.last_checkpoint
    if last is None:
        return f"{told}; there is none before it."
    step = numbers.count(last.step)
    if last.notfinite:
        return f"{told}, as the newest, of step {step}, {holds(last.notfinite)}{instead(last)}."
    if finding.step is not None and last.step >= finding.step:
        return f"{told}, as the newest, of step {step}, may."
    return f"{told}; the newest before it is of step {step}."


NEEDS_ALL = ("checkpoint", "checkpoint-and-stop", "stop", "pause")
"""Commands for which all ranks come to one boundary, the end of a step."""
GIVEN_UP_MIN = 10
"""The ranks have so long to agree."""


def waits_for(name: str, status: Status | None) -> str:
    """Whom ``name`` would wait for, in a few words; empty when all ranks can follow it."""
    if status is None or name not in NEEDS_ALL or _gone(status):
        return ""
    stuck, how = _stuck(status)
    if not how:
        return ""
    return f"not before {_some(stuck) if stuck else 'a rank'}, {how}, reaches the end of a step"


def cannot_follow(name: str, status: Status | None) -> bool:
    """Whether it is known, and not only suspected, that ``name`` waits in vain: a rank hangs or is
    stopped. One that the hub does not hear may well train on, and hear of it from the others."""
    if status is None or not waits_for(name, status):
        return False
    return any(one.kind in STANDS and one.severity == "critical" for one in status.findings)


def held_back(
    name: str, status: Status | None, overview: Overview | None, *, stays: bool = True
) -> list[str]:
    """For whoever waits for ``name`` to happen, a line each: who does not come and why, what comes
    of ``name`` (``stays``: it stays asked for), and how a run that hangs is ended; nothing where
    all ranks can follow it."""
    if status is None or not waits_for(name, status):
        return []
    stuck, how = _stuck(status)
    who, are = (_some(stuck) if stuck else "a rank"), "are" if len(stuck) > 1 else "is"
    verdict = status.verdict
    why = ""
    if verdict is not None and (verdict.kind in HANGS or set(verdict.ranks) & set(stuck)):
        why = f" ({safe(verdict.headline)})"
    goes = "they go" if len(stuck) > 1 else "it goes"
    end = how_to_end(status, overview)
    if stays:
        after = (
            f"it happens if {goes} on within {GIVEN_UP_MIN} min, else it is given up; rankscope "
            "cancel gives it up now"
        )
    else:
        after = (
            f"it is given up (with --wait it would happen if {goes} on within {GIVEN_UP_MIN} min)"
        )
    return [
        f"{who} {are} {how} and cannot reach the end of a step{why}: {after}",
        *([f"a run that hangs is ended from outside: {end}"] if end else []),
    ]


def _gone(status: Status) -> list[int]:
    return [row.rank for row in status.ranks if row.process == "ended" or row.phase == "ended"]


def _stuck(status: Status) -> tuple[list[int], str]:
    """Which ranks cannot reach a boundary, as far as that is known, and how they are; empty when
    all can."""
    stopped = [row.rank for row in status.ranks if row.process == "stopped"]
    mute = [row.rank for row in status.ranks if row.link != "up"]
    stuck = stopped or mute or _blamed(status)
    if not stuck and not hangs(status):
        return [], ""
    return stuck, "stopped" if stopped else "silent" if mute else "stuck"


def _hindered(name: str, status: Status | None) -> list[str]:
    """What comes of ``name`` where not all ranks can reach a boundary; empty where they can."""
    if status is None or name not in NEEDS_ALL:
        return []
    gone = _gone(status)
    if gone:
        verb, them = ("has", "it") if len(gone) == 1 else ("have", "them")
        return [
            f"{_some(gone)} {verb} ended: the ranks cannot agree on a step without {them}, and the "
            "hub refuses this. What is left of the run is ended by whoever started it: Ctrl-C "
            "there, or its job.",
        ]
    stuck, how = _stuck(status)
    if not how:
        return []
    who, one = (_some(stuck) if stuck else "a rank"), len(stuck) <= 1
    told = (
        f"{who} {'is' if one else 'are'} {how} and cannot reach the end of a step; the others "
        f"wait there, and nothing happens before {who} {'goes' if one else 'go'} on."
    )
    after = (
        f"Within {GIVEN_UP_MIN} min it still happens, at a step that all reach; after that the "
        "request is given up. X cancels it."
    )
    return [told, after, *([_lost(status)] if name == "stop" else [])]


def _blamed(status: Status) -> list[int]:
    """Whom the verdict of a run that does not move blames."""
    verdict = status.verdict
    if not hangs(status) or verdict is None or verdict.severity == "info":
        return []
    return list(verdict.ranks)


def _some(ranks: list[int]) -> str:
    return numbers.ranks(ranks, 4)


def _who(status: Status | None) -> str:
    if status is None or not status.world_size:
        return "All ranks"
    if status.world_size <= 2:
        return ("The one rank will", "Both ranks")[status.world_size - 1]
    return f"All {numbers.count(status.world_size)} ranks"


def _about(status: Status | None) -> str:
    if status is None:
        return "the next"
    return f"{numbers.count(status.step + STEPS_AHEAD)} (now {numbers.count(status.step)})"


def _lost(status: Status | None) -> str:
    if status is not None and status.last_checkpoint is None and status.resumed is not None:
        after = numbers.count(status.resumed.step)
        return f"Nothing has been saved: what the run has done since step {after} is lost."
    if status is None or status.last_checkpoint is None:
        return "There is no checkpoint: all that the run has done is lost."
    steps = max(0, status.step - status.last_checkpoint.step)
    saved = numbers.count(status.last_checkpoint.step)
    if not steps:
        return f"Nothing is saved: what is done after checkpoint {saved} is lost."
    return (
        f"Nothing is saved: the {numbers.plural(steps, 'step')} since checkpoint {saved} "
        f"{'is' if steps == 1 else 'are'} lost."
    )


def _in_work(status: Status | None) -> str:
    what = "" if status is None else status.control
    told = f"In work: {what}." if what else "Nothing is known to be in work."
    return f"{told} A save that is given up is thrown away; the checkpoint before stays the newest."
