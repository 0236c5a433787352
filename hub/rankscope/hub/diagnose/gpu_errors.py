"""``gpu-errors``: memory errors that could not be corrected, links with errors, lost GPUs."""

from rankscope.hub.diagnose.text import age_text
from rankscope.hub.rankgpus import ranks_on
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding, Severity

LEAST_NVLINK = 10
"""A link retries now and then."""

LASTS_S = 600.0
"""Errors are told for so long after the last of them."""

MAX_FINDINGS = 8
LOST = (" is lost:", " needs a reset:")
"""What a sentinel says of a GPU that does not answer (``sentinel.nvml.lost_note``)."""


def gpu_errors(state: RunState, now_s: float) -> list[Finding]:
    """One finding a GPU with errors since the run began, and one a node that lost one."""
    found = []
    for key, gpu in sorted(state.gpus.watched.items()):
        ecc = (gpu.ecc_last or 0) - (gpu.ecc_first or 0)
        links = (gpu.nvlink_last or 0) - (gpu.nvlink_first or 0)
        if ecc > 0 and now_s - gpu.ecc_at_s <= LASTS_S:
            text = f"{ecc} memory error{'s' if ecc > 1 else ''} that could not be corrected"
            next_ = "what it computes may be wrong: drain the node, and see nvidia-smi -q -d ECC"
            found.append(_finding(state, key, "critical", text, now_s - gpu.ecc_at_s, next_))
        elif links >= LEAST_NVLINK and now_s - gpu.nvlink_at_s <= LASTS_S:
            text = f"{links} errors on its NVLinks"
            next_ = "see which link it is: nvidia-smi nvlink -e"
            found.append(_finding(state, key, "warning", text, now_s - gpu.nvlink_at_s, next_))
    return [*_lost(state), *found][:MAX_FINDINGS]


def _finding(
    state: RunState,
    key: tuple[str, int],
    severity: Severity,
    text: str,
    age_s: float,
    next_: str,
) -> Finding:
    host, index = key
    return Finding(
        kind="gpu-errors",
        severity=severity,
        ranks=ranks_on(state, {key})[key],
        victims=[],
        step=None,
        since_s=max(0.0, age_s),
        headline=f"GPU {index} of {host} has had {text} since the run began",
        evidence=[f"the last of them {age_text(max(0.0, age_s))} ago, as NVML counts"],
        next=f"{next_} -i {index} (on {host})",
    )


def _lost(state: RunState) -> list[Finding]:
    found = []
    for host, sentinel in sorted(state.nodes.by_host.items()):
        if not any(words in sentinel.gpu_note for words in LOST):
            continue
        size = state.size()
        here = [rank for rank in range(size) if state.host(rank) == host]
        found.append(
            Finding(
                kind="gpu-errors",
                severity="critical",
                ranks=[],
                victims=here,
                step=None,
                since_s=0.0,
                headline=f"a GPU of {host} does not answer: {sentinel.gpu_note}",
                evidence=[f"sentinel on {host}: {sentinel.gpu_note}"],
                next=f"read what the driver says: dmesg | grep -i xid (on {host})",
            )
        )
    return found
