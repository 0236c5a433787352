"""Whether a peer is there: judged from the length of its silence, and nothing else."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.hub.state import RunState
from rankscope.hub.state.columns import Flags, Floats, Integers
from rankscope.hub.state.nodes import Sentinel
from rankscope.hub.state.silence import sentinel_since_s, since_s
from rankscope.protocol.shapes import Link

SILENT_S = 2.0
"""An agent speaks every 0.5 s: four missed beats are worth showing."""

DOWN_S = 60.0
"""Nobody waits for it any more."""

SENTINEL_SILENT_S = 3.0
"""A sentinel speaks every second."""

UP, SILENT, DOWN = 0, 1, 2
LINKS: Sequence[Link] = ("up", "silent", "down")


def link(age_s: float | None, silent_s: float) -> Link:
    """``up``, ``silent`` beyond ``silent_s``, ``down`` beyond a minute or when never heard."""
    if age_s is None or not age_s <= DOWN_S:
        return "down"
    return "silent" if age_s > silent_s else "up"


def silence_s(state: RunState, now_s: float) -> Floats:
    """Seconds each rank has been silent without a reason, shape (size,), NaN for ranks never
    heard."""
    ages: Floats = now_s - since_s(state.ranks)[: state.size()]
    return ages


def links(state: RunState, now_s: float) -> NDArray[np.int8]:
    """Each rank's link (an index into ``LINKS``), shape (size,)."""
    silent_s = silence_s(state, now_s)
    codes = np.full(silent_s.shape, UP, dtype=np.int8)
    codes[silent_s > SILENT_S] = SILENT
    # Written so that NaN, never heard, is down as well.
    codes[~(silent_s <= DOWN_S)] = DOWN
    codes[state.ranks.over()[: len(codes)]] = DOWN
    if state.unwatched:
        codes[:] = DOWN
    return codes


READY_SLACK_S = 1.0
"""A rank's last word, and the sentinel's looks, may be so much older than what came after them."""

COMPUTES_S = 30.0
"""A rank that is silent and was running or ready to run all the time, or collects garbage, is in no
trouble of its own before."""


def at_work(state: RunState, rank: int, now_s: float) -> bool:
    """Whether a silent rank was running or ready to run for as long as it has been silent, as its
    sentinel sees: in a long call that computes, or without a core of its own. Not for ever."""
    ready_s = now_s - state.ranks.ready_since_s.item(rank)
    silent_s = now_s - state.ranks.heard_s.item(rank)
    return ready_s + READY_SLACK_S >= silent_s and silent_s < COMPUTES_S  # false for NaN


def sentinel_link(sentinel: Sentinel | None, now_s: float) -> Link:
    """The link of a node's sentinel; ``down`` when none was ever heard of."""
    if sentinel is None:
        return "down"
    return link(now_s - sentinel_since_s(sentinel), SENTINEL_SILENT_S)


def live(state: RunState) -> Flags:
    """Which ranks were heard of in this attempt and have not ended, shape (size,)."""
    alive: Flags = (state.ranks.heard() & ~state.ranks.over())[: state.size()]
    return alive


def by_host(hosts: Integers) -> list[tuple[int, Integers]]:
    """For each host index (-1: not known yet) the ranks that are there, ascending."""
    order = np.argsort(hosts, kind="stable")
    values, starts = np.unique(hosts[order], return_index=True)
    parts = np.split(order, starts[1:])
    return [(host, part) for host, part in zip(values.tolist(), parts, strict=False) if host >= 0]
