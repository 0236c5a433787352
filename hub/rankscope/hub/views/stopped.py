"""That an operator ended the run: it is over in good order, and yet not what it was started for."""

from rankscope.hub.views.knowledge import Knowledge, run_step
from rankscope.protocol.shapes import Command, State

STOPS = ("stop", "checkpoint-and-stop")


def stopped(know: Knowledge, word: State) -> str:
    """``by ada@laptop after step 572: the 527 steps since checkpoint 45 are not saved``; empty for
    a run that nobody stopped, or that is not over in good order."""
    if word != "finished":
        return ""
    command = _stop(know)
    if command is None:
        return ""
    step = run_step(know.state) if command.step is None else command.step
    return f"by {command.author} after step {step}: {_kept(know, step)}"


def _stop(know: Knowledge) -> Command | None:
    for entry in reversed(know.incidents.shown):
        command = entry.command
        if entry.attempt != know.state.attempt or command is None:
            continue
        if entry.event == "closed" and command.command in STOPS and command.state == "done":
            return command
    return None


def _kept(know: Knowledge, step: int) -> str:
    saved, resumed = know.state.saves.back(), know.state.saves.resumed
    if saved is None and resumed is not None:
        return f"nothing was saved since it was resumed after step {resumed.step}"
    if saved is None:
        return "nothing was saved"
    lost = step - saved.step
    if lost <= 0:
        return "that step is saved"
    steps = "1 step" if lost == 1 else f"{lost} steps"
    return f"the {steps} since checkpoint {saved.step} {'is' if lost == 1 else 'are'} not saved"
