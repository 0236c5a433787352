"""Sentences that the verdicts about hangs share."""

from collections.abc import Sequence

from rankscope.hub.diagnose.hang.scene import Scene
from rankscope.hub.diagnose.hang.table import GroupRows, label
from rankscope.hub.diagnose.text import at_text, ranks_text
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import ENDED, FINISHED
from rankscope.hub.state.stacks import StackNote

MAX_FRAMES_TOLD = 6
MAX_PLACES_TOLD = 4


def stack_of(scene: Scene, rank: int) -> StackNote | None:
    """The rank's stacks, if it has not moved since they were taken."""
    moved_s = scene.now_s - scene.still_s(rank)
    return scene.state.stacks.newest(rank, moved_s - 0.05)


def source_of(scene: Scene, rank: int) -> str:
    """``file:line in function`` where the rank is; empty while that is not known."""
    note = stack_of(scene, rank)
    return "" if note is None else note.source


def frames_text(state: RunState, note: StackNote) -> str:
    """The innermost frames of the training thread in one line, innermost first."""
    main = note.main()
    if main is None:
        return ""
    frames = state.stacks.frames_of(main)[:MAX_FRAMES_TOLD]
    return " < ".join(
        f"{file.rpartition('/')[2]}:{line} {function}" if line else f"{function} ({file})"
        for file, line, function in frames
    )


def where_text(scene: Scene, rank: int) -> str:
    """Where the rank is, in words: ``in forward of step 12, at train.py:88 in main``."""
    state = scene.state
    source = source_of(scene, rank)
    if not scene.live[rank] and not has_left(state, rank):
        at = f", at {source}" if source else ""
        return f"had stood still {at_text(state, rank)}{at}"
    if not scene.live[rank]:
        after = f"after step {state.ranks.step.item(rank)}"
        if state.ranks.process[rank] == ENDED:
            return f"has ended in order {after}"
        at = f", at {source}" if source else ""
        return f"has left the training loop {after}{at}"
    at = f", at {source}" if source else ""
    return f"is {at_text(state, rank)}{at}"


def places(scene: Scene, ranks: Sequence[int]) -> list[str]:
    """A line for each place that some of ``ranks`` are in, with the stack."""
    lines = []
    by_text: dict[str, list[int]] = {}
    for rank in ranks[:256]:
        by_text.setdefault(where_text(scene, rank), []).append(rank)
    for text, here in list(by_text.items())[:MAX_PLACES_TOLD]:
        who = ranks_text(here)
        lines.append(f"{who} {text if len(here) == 1 else text.replace('has ', 'have ', 1)}")
        note = stack_of(scene, here[0])
        if note is not None:
            stack = frames_text(scene.state, note)
            if stack:
                outside = scene.state.stacks.is_outside(here[0], note)
                by = "its sentinel" if outside else "itself"
                lines.append(f"stack of rank {here[0]}, from {by}: {stack}")
    return lines


def operation_at(state: RunState, group: GroupRows, ranks: Sequence[int], seq: int) -> str:
    """``all_reduce [1024] float32`` as one of ``ranks`` has it; empty where nobody told."""
    for rank in ranks[:64]:
        found = state.operations.at(rank, group.name, seq)
        if found is not None:
            return found.text()
    return ""


def name_at(state: RunState, group: GroupRows, ranks: Sequence[int], seq: int) -> str:
    """``gloo:all_reduce`` as one of ``ranks`` has it; empty where nobody told."""
    for rank in ranks[:64]:
        found = state.operations.at(rank, group.name, seq)
        if found is not None:
            return found.name
    return ""


def waiting_line(scene: Scene, group: GroupRows, waiting: Sequence[int], seq: int) -> str:
    """``ranks 0–4 wait in all_reduce [1024], #18233 of group tp, called at train.py:7 in main``."""
    state = scene.state
    operation = operation_at(state, group, waiting, seq) or "a collective"
    source = next(
        filter(None, (state.operations.source_at(rank, group.name, seq) for rank in waiting[:64])),
        "",
    )
    if not source:
        source = next(filter(None, (source_of(scene, rank) for rank in waiting[:64])), "")
    called = f", called at {source}" if source else ""
    verb = "waits" if len(waiting) == 1 else "wait"
    return (
        f"{ranks_text(waiting)} {verb} in {operation}, #{seq} of "
        f"{label(group.name, group.description)}{called}"
    )


def count_text(ranks: Sequence[int]) -> str:
    """``rank 0`` for one, else ``7 ranks``."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"


def has_left(state: RunState, rank: int) -> bool:
    """Whether it said goodbye in order: its training is over."""
    return bool(state.ranks.goodbye[rank] == FINISHED)
