"""Findings that several scenes show."""

from support.scenes.making import finding

DEAD = finding(
    "rank-dead",
    [2],
    [0, 1, 3],
    "rank 2 died: SIGKILL at step 12481, in backward",
    evidence=[
        "rank 2: pid 4702 ended by signal 9 (SIGKILL), seen by the sentinel on node-a",
        "whether the kernel killed it for memory cannot be read there",
    ],
    next="see whether it was for memory: dmesg | grep -i kill (on node-a)",
    where={"phase": "backward"},
)
STOPPED = finding(
    "rank-stopped",
    [1],
    [0, 2, 3],
    "rank 1 is stopped (SIGSTOP) at step 12481, in forward",
    next="resume it: kill -CONT 4701 on node-a",
    where={"phase": "forward"},
)
RAISED = finding(
    "exception",
    [5],
    [],
    "rank 5 raised ValueError at step 12481: no such token; a message long enough to need more "
    "than one line even on a wide terminal, as real ones are when a library prints its inputs",
    severity="warning",
    where={"source": "train.py:118 in main"},
)
