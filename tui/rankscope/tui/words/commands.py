"""What a command will do, said before it is given."""

from rankscope.protocol.shapes import Status
from rankscope.tui.words import numbers

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


def consequences(name: str, status: Status | None) -> list[str]:
    """In sentences: which ranks, at which step roughly, what stops, what is lost."""
    if name == "unlock":
        return [
            "Then c, C, P, R, S and X may command this run, each after a question of its own. "
            "Nothing is sent now; u locks them again.",
        ]
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
    if status is None or status.last_checkpoint is None:
        return "There is no checkpoint: all that the run has done is lost."
    steps = max(0, status.step - status.last_checkpoint.step)
    saved = numbers.count(status.last_checkpoint.step)
    return (
        f"Nothing is saved: the {numbers.plural(steps, 'step')} since checkpoint {saved} are lost."
    )


def _in_work(status: Status | None) -> str:
    what = "" if status is None else status.control
    told = f"In work: {what}." if what else "Nothing is known to be in work."
    return f"{told} A save that is given up is thrown away; the checkpoint before stays the newest."
