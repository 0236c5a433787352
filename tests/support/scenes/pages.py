"""Snapshots for the screens of steps, incidents, checkpoints, memory and runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from rankscope.protocol import shapes as s
from rankscope.protocol.shapes import Shape
from rankscope.tui.dashboard.runwatch import RunWatch
from rankscope.tui.feed.poller import Snapshot
from rankscope.tui.runs import ListedRun
from support.scenes.making import HUB_S, run
from support.scenes.runs import dead, finished
from support.scenes.views import (
    MEMORY_GROWTH,
    STRAGGLER,
    alone_view,
    checkpoints_view,
    empty_view,
    log,
    memory_view,
    no_checkpoints,
    over_view,
    steps_view,
)


def shown(view: Shape, snapshot: Snapshot | None = None) -> Snapshot:
    return replace(snapshot or run(8, 4), view=view)


def _stopped() -> Snapshot:
    snapshot = shown(over_view(), finished())
    assert snapshot.status is not None
    by = "by ada@laptop after step 12480: the 480 steps since checkpoint 12000 are not saved"
    status = msgspec.structs.replace(snapshot.status, stopped=by)
    return replace(snapshot, status=status, view_hub_s=HUB_S)


def _stalled() -> Snapshot:
    return dead()


def _late() -> Snapshot:
    return run(8, 4, findings=[STRAGGLER])


def _controlled(text: str, **more: object) -> Snapshot:
    return run(8, 4, control=text, overview={"control": text}, **more)  # type: ignore[arg-type]


SAVING = "checkpoint asked for by ada@laptop: all ranks are saving"
PAUSED = "paused after step 12480 by ada@laptop for 3 min, 27 min more at most: rankscope resume"


def _growing() -> Snapshot:
    return run(findings=[MEMORY_GROWTH])


SCENES: dict[str, Callable[[], Snapshot]] = {
    "steps-healthy": lambda: shown(steps_view()),
    "steps-late": lambda: shown(steps_view(late=True), _late()),
    "steps-odd": lambda: shown(steps_view(odd=True)),
    "steps-alone": lambda: shown(alone_view(), run(1, 1, gpu=False)),
    "steps-none": lambda: shown(empty_view()),
    "incidents-many": lambda: shown(log(), _stalled()),
    "incidents-none": lambda: shown(s.Incidents(incidents=[])),
    "checkpoints-healthy": lambda: shown(checkpoints_view()),
    "checkpoints-saving": lambda: shown(checkpoints_view(saving=True), _controlled(SAVING)),
    "checkpoints-failed": lambda: shown(checkpoints_view(failed=True), _stalled()),
    "checkpoints-over": _stopped,
    "checkpoints-none": lambda: shown(no_checkpoints(), run(2, 2, gpu=False)),
    "memory-healthy": lambda: shown(memory_view()),
    "memory-growing": lambda: shown(memory_view(growing=True), _growing()),
    "memory-none": lambda: shown(
        msgspec.structs.replace(memory_view(ranks=0), steps=[], prediction="")
    ),
    "runs-many": lambda: run(8, 4),
    "runs-trouble": _stalled,
    "overview-pace": lambda: shown(steps_view()),
    "overview-late": lambda: shown(steps_view(late=True), _late()),
    "overview-paused": lambda: _controlled(PAUSED, state="paused"),
}
"""By the screen's name and what is the matter."""


def listed(run_: str, state: str, **changes: object) -> ListedRun:
    base = ListedRun(
        run=run_,
        state="live",
        name="gpt-stdlib",
        created_s=HUB_S - 8047.0,
        ended_s=None,
        exit_code=None,
        world_size=8,
        endpoint=None,
        command=["torchrun", "train.py"],
        path=f"/home/ada/.local/state/rankscope/runs/{run_}",
    )
    return msgspec.structs.replace(base, state=state, **changes)


RUNS: Sequence[ListedRun] = (
    listed("20261129-163000-k3f9ab", "live"),
    listed(
        "20261129-161500-77aa01",
        "live",
        world_size=512,
        name="wide",
        severity="critical",
        headline="rank 77 died: SIGKILL at step 812, in backward",
    ),
    listed("20261128-090000-00ff12", "ended", ended_s=1.0, exit_code=0, created_s=HUB_S - 118_000),
    listed(
        "20261127-090000-00ff13",
        "ended",
        ended_s=1.0,
        exit_code=1,
        world_size=2,
        created_s=HUB_S - 218_000,
        severity="critical",
        headline="rank 1 raised ValueError at step 12: no such token, and a long message",
    ),
    listed("20261126-090000-00ff14", "stale", world_size=4, created_s=HUB_S - 318_000),
    listed(
        "20261125-090000-00ff15",
        "unreadable",
        world_size=None,
        name="",
        created_s=None,
        note="run.json is damaged",
    ),
)


def watch(runs: Sequence[ListedRun] = RUNS) -> RunWatch:
    """A list of runs that does not change."""
    found = RunWatch()
    found.latest = runs
    return found
