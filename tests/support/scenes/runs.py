"""One run in each state that a screen has to show."""

from dataclasses import replace

import msgspec

from rankscope.protocol import shapes as s
from rankscope.tui.feed.poller import Snapshot
from support.scenes.findings import DEAD, RAISED, STOPPED
from support.scenes.making import finding, run

NO_STEP: dict[str, object] = {
    "step": 0,
    "phase": "starting",
    "phase_s": 3.0,
    "step_s": None,
    "loss": None,
    "grad_norm": None,
    "microbatch": 0,
    "tokens_per_s": None,
    "memory_peak_bytes": None,
}
NO_NUMBERS: dict[str, object] = {
    "steps_per_s": None,
    "step_s": None,
    "step_spread_s": None,
    "tokens_per_s": None,
    "loss": None,
    "grad_norm": None,
    "phase_s": {},
    "overhead_s_per_step": None,
    "healthy_s": None,
    "last_checkpoint": None,
    "history": s.History(),
    "up_s": 4.0,
}
WAITS: dict[str, object] = {"phase": "backward", "phase_s": 42.0, "heard_s": 0.3}


def connecting() -> Snapshot:
    return Snapshot(None, None, None, 0.0, "connecting", "", 0.0)


def never_reached() -> Snapshot:
    error = "nobody listens at tcp://127.0.0.1:5555; the hub has ended or is out of reach"
    return Snapshot(None, None, None, 0.0, "away", error, 0.0)


def starting() -> Snapshot:
    return run(
        4,
        4,
        gpu=False,
        state="starting",
        rows=dict.fromkeys(range(4), NO_STEP),
        absent=(2, 3),
        overview=NO_NUMBERS,
        step=0,
        last_checkpoint=None,
        overhead_s_per_step=None,
    )


def healthy_2() -> Snapshot:
    return run(2, 2, gpu=False, last_checkpoint=None, overview={"last_checkpoint": None})


def healthy_8() -> Snapshot:
    return run(8, 4)


def fleet(ranks: int = 512) -> Snapshot:
    return run(
        ranks,
        8,
        findings=[
            finding(
                "straggler",
                [77],
                [],
                "rank 77 is 1.8 times slower in forward",
                severity="warning",
                next="look at node-0009: rankscope ranks",
            )
        ],
    )


def dead() -> Snapshot:
    gone = {"process": "ended", "ended": "SIGKILL", "link": "down", "phase_s": 42.0}
    return run(
        8,
        4,
        state="stalled",
        stalled_s=42.0,
        findings=[DEAD, RAISED],
        rows={2: gone, **dict.fromkeys((0, 1, 3), WAITS)},
        overview={"incidents": 2},
    )


def stopped() -> Snapshot:
    return run(
        4,
        4,
        gpu=False,
        findings=[STOPPED],
        rows={
            1: {"process": "stopped", "link": "silent", "phase_s": 42.0},
            **dict.fromkeys((0, 2, 3), WAITS),
        },
    )


def stalled() -> Snapshot:
    return run(8, 4, state="stalled", stalled_s=42.0, rows=dict.fromkeys(range(8), WAITS))


def away() -> Snapshot:
    error = "no word from the hub at tcp://127.0.0.1:15000: its process 7 is stopped"
    return replace(healthy_8(), link="away", age_s=4.0, error=error)


def finished() -> Snapshot:
    done: dict[str, object] = {
        "phase": "ended",
        "process": "ended",
        "ended": "exit 0",
        "link": "down",
    }
    return run(2, 2, gpu=False, state="finished", exit_code=0, rows={0: done, 1: done})


def failed() -> Snapshot:
    gone = {
        "process": "ended",
        "ended": "SIGKILL",
        "link": "down",
        "phase": "backward",
        "phase_s": 42.0,
    }
    dragged: dict[str, object] = {
        "process": "ended",
        "ended": "SIGTERM",
        "link": "down",
        "phase": "ended",
    }
    return run(
        4,
        4,
        gpu=False,
        state="failed",
        exit_code=1,
        findings=[DEAD],
        rows={2: gone, **dict.fromkeys((0, 1, 3), dragged)},
    )


def recording() -> Snapshot:
    """A failed run from its recording, long after: its sentinel has long been gone."""
    snapshot = failed()
    assert snapshot.overview is not None
    nodes = [msgspec.structs.replace(node, sentinel="silent") for node in snapshot.overview.nodes]
    overview = msgspec.structs.replace(snapshot.overview, nodes=nodes)
    return replace(snapshot, overview=overview, replay=True)


def raised() -> Snapshot:
    """Rank 2 raised and ended; another felt it."""
    evidence = [
        "Traceback (most recent call last):",
        '  File "train.py", line 118, in main',
        "    loss = objective(model(batch))",
        "           ^^^^^^^^^^^^^^^^^^^^^^^",
        "ValueError: no such token",
        "ranks 0, 1 and 3 raised later: RuntimeError: connection closed by peer",
    ]
    raiser = finding(
        "exception",
        [2],
        [0, 1, 3],
        "rank 2 raised ValueError: no such token at step 12481",
        evidence=evidence,
        next="read train.py:118 in main",
        where={"source": "train.py:118 in main", "phase": "forward"},
    )
    gone: dict[str, object] = {
        "process": "ended",
        "ended": "exit 1",
        "link": "down",
        "phase": "ended",
    }
    return run(
        4,
        4,
        gpu=False,
        state="failed",
        exit_code=1,
        findings=[raiser],
        rows=dict.fromkeys(range(4), gone),
    )


SCENES = {
    "connecting": connecting,
    "never-reached": never_reached,
    "starting": starting,
    "healthy-2": healthy_2,
    "healthy-8": healthy_8,
    "fleet-512": fleet,
    "dead": dead,
    "stopped": stopped,
    "stalled": stalled,
    "away": away,
    "finished": finished,
    "failed": failed,
    "recording": recording,
    "raised": raised,
}
