"""What is said of saves and of operators' commands."""

from collections.abc import Mapping

from rankscope.protocol.shapes import (
    Checkpoint,
    CheckpointsView,
    Command,
    Resumed,
    SaveOutcome,
    SaveRow,
)
from rankscope.tui.words import numbers
from rankscope.tui.words.marks import Mark, safe

RUN_OVER = "the run is over"
"""Why nothing is possible then, as the hub says it."""
WRITTEN = ("syncing", "publishing")
"""Phases in which all bytes are written."""


def state_text(saved: Checkpoint) -> str:
    """``verified``; of one that holds NaN that, too, and which does not."""
    text = "verified" if saved.verified else "not verified"
    if not saved.notfinite:
        return text
    return f"{text}, but {holds(saved.notfinite)}{instead(saved)}"


def holds(notfinite: str) -> str:
    """``holds NaN``, of the words for what is not finite in a checkpoint: not in what."""
    return safe(notfinite.partition(":")[0].removeprefix("it "))


def instead(saved: Checkpoint) -> str:
    """Which checkpoint to go on from in place of one that is not finite, to stand behind that."""
    if saved.finite_step is None:
        return ""
    return f"; step {numbers.count(saved.finite_step)} does not"


def resumed_text(resumed: Resumed | None, saved: Checkpoint | None) -> str:
    """``resumed after step 12``, which goes without saying beside the checkpoint it was resumed
    from; empty then, and for a run that began at step 1."""
    if resumed is None or (saved is not None and saved.resumed):
        return ""
    return f"resumed after step {numbers.count(resumed.step)}"


def none_since(resumed: Resumed | None) -> str:
    """That a resumed run has saved nothing; empty for one that began at step 1."""
    if resumed is None:
        return ""
    return f"nothing has been saved since it was {resumed_text(resumed, None)}"


def share(row: SaveRow) -> float:
    """How much of its bytes a rank has written, from 0 to 1."""
    if row.phase in WRITTEN:
        return 1.0
    return min(1.0, row.done_bytes / row.total_bytes) if row.total_bytes else 0.0


def total_text(view: CheckpointsView) -> str:
    """``saving step 12 482: 41% of 21.3 GB, about 20 s left, slowest is rank 5, 640 MB/s``."""
    done = sum(row.done_bytes for row in view.ranks)
    total = sum(row.total_bytes for row in view.ranks)
    steps = sorted({row.step for row in view.ranks})
    parts = []
    if total:
        parts.append(f"{done / total:.0%} of {numbers.size_bytes(total)}")
    left_s = max(map(_left_s, view.ranks), default=0.0)
    if left_s > 1:
        parts.append(f"about {numbers.age(left_s) if left_s > 9.5 else f'{left_s:.0f} s'} left")
    if view.slowest is not None and len(view.ranks) > 1:
        parts.append(f"slowest is rank {view.slowest}")
    rate = sum(row.rate_bytes_per_s or 0.0 for row in view.ranks)
    if rate:
        parts.append(f"{numbers.size_bytes(round(rate))}/s")
    text = f"saving step {' and '.join(numbers.count(step) for step in steps[:2])}"
    return f"{text}: {', '.join(parts)}" if parts else text


def _left_s(row: SaveRow) -> float:
    """How long the rank will still write."""
    if not row.rate_bytes_per_s or row.phase in WRITTEN:
        return 0.0
    return (row.total_bytes - row.done_bytes) / row.rate_bytes_per_s


def is_over(view: CheckpointsView) -> bool:
    """Whether the run is: its ages are as of its end then, or stand still."""
    return bool(view.possible) and set(view.possible.values()) == {RUN_OVER}


def outcome_mark(one: SaveOutcome) -> Mark:
    if one.ok:
        return Mark("✓", "done", "warn" if one.notfinite else "good")
    if "cancel" in one.text:
        return Mark("■", "cancelled", "quiet")
    return Mark("✗", "failed", "bad")


def outcome_text(one: SaveOutcome) -> str:
    """Size and path of one that is there, and what it holds that is not finite; why another is
    not."""
    if one.ok:
        marked = f"  {safe(one.notfinite)}" if one.notfinite else ""
        return f"{numbers.size_bytes(one.size_bytes)}{marked}  {safe(one.path)}"
    where = "" if one.rank is None or f"rank {one.rank}" in one.text else f"rank {one.rank}, "
    phase = f"{one.phase}: " if one.phase and one.phase not in one.text else ""
    return safe(beyond(outcome_mark(one).word, f"{where}{phase}{one.text}"))


def command_mark(one: Command) -> Mark:
    match one.state:
        case "done":
            return Mark("✓", "done", "good")
        case "refused" | "given-up":
            return Mark("✗", one.state.replace("-", " "), "bad")
        case "cancelled":
            return Mark("■", "cancelled", "quiet")
        case _:
            return Mark("◌", one.state, "warn")


def command_text(one: Command) -> str:
    """What came of it, beyond the word of its mark."""
    return safe(beyond(command_mark(one).word, one.text))


def beyond(word: str, text: str) -> str:
    """``text`` as it stands behind ``word``, which it may begin with: that is said once."""
    rest = text.removeprefix(word)
    return text if rest == text or rest[:1].isalnum() else rest.lstrip(" :,;")


def past(view: CheckpointsView) -> list[tuple[Command, float]]:
    """What came of commands and how long ago they ended, the newest first; pauses, which may have
    lasted, with how long ago they began."""
    found = []
    for one in view.commands:
        since_s = one.age_s if one.command == "pause" else one.ended_age_s
        found.append((one, one.age_s if since_s is None else since_s))
    return sorted(found, key=lambda each: each[1])


def command_of(action: str) -> str:
    """The command that an action of the registry gives; empty for none."""
    return action.partition("'")[2].partition("'")[0]


def refusal(name: str, possible: Mapping[str, str]) -> str:
    """Why the command ``name`` would be refused, as a key that does nothing says it; empty when it
    would be accepted."""
    told = safe(possible.get(name, ""))
    return f"{name}, not now: {told}" if told else ""


def why_not(name: str, view: CheckpointsView, readonly: bool) -> str:
    """Why the command ``name`` would not be accepted now; empty when it would."""
    if readonly:
        return "this dashboard may only look"
    return view.possible.get(name, "") if name else ""
