"""``gpu-throttled``: GPUs that heat, power or hardware slow down."""

from rankscope.hub.diagnose.text import age_text
from rankscope.hub.rankgpus import gpu_of, ranks_on
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

LASTS_S = 5.0
"""Shorter is nothing."""

OVER_S = 10.0
"""It is over when it has not been throttled for so long."""

MAX_EVIDENCE = 8


def gpu_throttled(state: RunState, now_s: float) -> list[Finding]:
    """One finding for all GPUs that are throttled."""
    slow = {}
    for key, gpu in state.gpus.watched.items():
        since_s = gpu.throttled_since_s
        if since_s is None:
            continue
        if gpu.free_since_s is not None and now_s - gpu.free_since_s > OVER_S:
            continue
        if (gpu.free_since_s or now_s) - since_s >= LASTS_S:
            slow[key] = since_s
    if not slow:
        return []
    ranks = ranks_on(state, set(slow))
    first = min(slow, key=lambda key: (slow[key], key))
    reasons = _words(state.gpus.watched[first].reasons)
    more = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
    return [
        Finding(
            kind="gpu-throttled",
            severity="warning",
            ranks=sorted({rank for here in ranks.values() for rank in here}),
            victims=[],
            step=None,
            since_s=max(0.0, now_s - slow[first]),
            headline=f"GPU {first[1]} of {first[0]} is throttled by {reasons}{more}",
            evidence=[
                _told(state, key, ranks[key], now_s - slow[key])
                for key in sorted(slow)[:MAX_EVIDENCE]
            ],
            next=f"look at it on {first[0]}: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER "
            f"-i {first[1]}",
        )
    ]


def _told(state: RunState, key: tuple[str, int], ranks: list[int], age_s: float) -> str:
    host, index = key
    who = f" (rank {', '.join(map(str, ranks))})" if ranks else ""
    told = f"GPU {index} of {host}{who}: {_words(state.gpus.watched[key].reasons)} "
    told += f"for {age_text(age_s)}"
    gpu = gpu_of(state, ranks[0]) if ranks else None
    if gpu is not None:
        for value, unit in (
            (gpu.temperature_c, "°C"),
            (gpu.sm_clock_mhz, "MHz"),
            (gpu.power_w, "W"),
        ):
            if value is not None:
                told += f", {value:.0f} {unit}"
    return told


def _words(reasons: list[str]) -> str:
    return ", ".join(reason.replace("_", " ") for reason in reasons)
