"""One-line progress, and what is kept for the final summary. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from rankscope.protocol import jsontext
from rankscope.protocol.shapes import History, Overview, Status
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import safe
from rankscope.tui.words.verdict import verdict

DEMO_OPTIONS = frozenset({"--trainer", "--ranks", "--steps", "--text"})
_OPTION = re.compile(r"--[a-z-]+")


@dataclass
class Losses:
    """The loss of the first step that was seen and of the last one."""

    first_step: int | None = None
    first: float | None = None
    last_step: int | None = None
    last: float | None = None

    def take(self, history: History) -> None:
        """Take in the run's newest steps."""
        for step, loss in zip(history.step, history.loss, strict=True):
            if loss is None:
                continue
            if self.first_step is None or step < self.first_step:
                self.first_step, self.first = step, loss
            if self.last_step is None or step >= self.last_step:
                self.last_step, self.last = step, loss


def progress_line(overview: Overview, steps: int) -> str:
    """``step 120/400   loss 2.3141   6.13 step/s   ✓ healthy``."""
    found = verdict(
        state=overview.state,
        finding=overview.verdict,
        stalled_s=overview.stalled_s,
        step=overview.step,
        healthy_s=None,
        exit_code=overview.exit_code,
        attached=bool(overview.world_size),
        ending=overview.ending,
    )
    words = f"{found.glyph} {found.head}"
    if overview.verdict is not None and overview.verdict.severity != "info":
        words = found.line()
    return (
        f"step {overview.step:>{len(str(steps))}}/{steps}   loss {numbers.loss(overview.loss)}   "
        f"{numbers.digits3(overview.steps_per_s)} step/s   {words}"
    )


def summary_line(status: Status, losses: Losses, took_s: float) -> str:
    """What a demonstration came to, in one line."""
    parts = [
        f"{status.state} at step {numbers.count(status.step)}",
        numbers.plural(status.world_size, "rank"),
        f"{took_s:.0f} s",
        f"dropped {numbers.count(status.dropped)}",
    ]
    if losses.first is not None and losses.last is not None:
        words = f"loss {numbers.loss(losses.first)} to {numbers.loss(losses.last)}"
        if status.state == "finished" and losses.last < losses.first:
            words += ", it learned"
        parts.insert(1, words)
    if status.verdict is not None and status.verdict.severity != "info":
        parts.insert(1, safe(status.verdict.headline))
    return " · ".join(parts)


def in_demo_words(refusal: str) -> str:
    """What a trainer said when it refused its settings, with advice that a demo can follow."""
    said, _, advice = refusal.rpartition("; ")
    if not said or set(_OPTION.findall(advice)) <= DEMO_OPTIONS:
        return refusal
    return f"{said}; give a larger --text, or fewer --ranks"


def document(status: Status, losses: Losses) -> dict[str, Any]:
    """The ``--json`` document: the status and the losses."""
    found: dict[str, Any] = jsontext.to_jsonable(status)
    found["losses"] = jsontext.to_jsonable({"first": losses.first, "last": losses.last})
    return found
