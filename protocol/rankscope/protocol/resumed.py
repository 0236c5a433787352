"""What a rank goes on from, as the facts of its hello tell it. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from rankscope.protocol import limits

STEP, PATH, NOTFINITE = "resumed_step", "resumed_from", "resumed_notfinite"


class Resumed(NamedTuple):
    step: int
    """After which it goes on."""
    path: str
    """Of the checkpoint; empty where that is not known."""
    notfinite: str = ""
    """What it holds that is not finite, in words."""


def told(resumed: Resumed | None) -> dict[str, str]:
    """The facts of a rank that goes on from ``resumed``; none for one that begins."""
    if resumed is None:
        return {}
    facts = {STEP: str(resumed.step), PATH: resumed.path[: limits.MAX_TEXT_CHARS]}
    if resumed.notfinite:
        facts[NOTFINITE] = resumed.notfinite[: limits.MAX_TEXT_CHARS]
    return facts


def heard(facts: Mapping[str, str], start_step: int) -> Resumed | None:
    """What a rank goes on from by its ``facts``; where these do not say, as of a loop with
    checkpoints of its own, by its ``start_step`` alone. None for one that begins at step 1."""
    path, step = facts.get(PATH, ""), _step(facts.get(STEP, ""))
    if path and step is not None:
        return Resumed(step, path, facts.get(NOTFINITE, ""))
    return Resumed(start_step, "") if start_step > 0 else None


def _step(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(limits.MAX_COUNT))):
        return None
    return step if (step := int(text)) <= limits.MAX_COUNT else None
