"""``duplicate-seed``: ranks that draw the same random numbers.

Their generators had the same seed and stood at the same place at the first training forward, so
dropout masks and augmentations are the same on them. All ranks alike, or all of equally large sets
(as tensor parallelism has it), may be meant: that is only noted.
"""

from rankscope.hub.diagnose.text import ranks_text
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Finding

MAX_FINDINGS = 4


def duplicate_seed(state: RunState, now_s: float) -> list[Finding]:
    """One finding for each set of ranks with one seed."""
    size = state.size()
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, own in state.setup.own.items():
        if rank < size and "seed" in own and "rng" in own:
            alike.setdefault((own["seed"], own["rng"]), []).append(rank)
    if len(alike) == sum(map(len, alike.values())):
        return []
    on_purpose = len({len(ranks) for ranks in alike.values()}) == 1
    findings: list[Finding] = []
    for (seed, _), ranks in alike.items():
        if len(ranks) < 2 or len(findings) == MAX_FINDINGS:
            continue
        ranks = sorted(ranks)
        everybody = len(alike) == 1
        findings.append(
            Finding(
                kind="duplicate-seed",
                severity="info" if on_purpose else "warning",
                ranks=ranks,
                victims=[],
                step=None,
                since_s=max(0.0, now_s - state.setup.changed_s),
                headline=f"{'all ranks' if everybody else ranks_text(ranks)} draw the same random "
                f"numbers: seed {seed}",
                evidence=[
                    f"{ranks_text(ranks)}: seed {seed} and the same state of the generator at the "
                    "first training forward"
                ],
                next="give each rank a seed of its own once the model is made, such as "
                "torch.manual_seed(seed + rank), unless it is meant",
            )
        )
    return findings
