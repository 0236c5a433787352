"""The findings: one pure function of (state, now) for each kind, tried in order.

First what ranks say of themselves and what sentinels see of them; kinds that rest on weaker
evidence come later.
"""

from collections.abc import Callable

from rankscope.hub.diagnose.checkpoint_failed import checkpoint_failed
from rankscope.hub.diagnose.checkpoint_slow import checkpoint_slow
from rankscope.hub.diagnose.duplicate_data import duplicate_data
from rankscope.hub.diagnose.duplicate_rank import duplicate_rank
from rankscope.hub.diagnose.duplicate_seed import duplicate_seed
from rankscope.hub.diagnose.environment_mismatch import environment_mismatch
from rankscope.hub.diagnose.exception import exception
from rankscope.hub.diagnose.gpu_errors import gpu_errors
from rankscope.hub.diagnose.gpu_spinning import gpu_spinning
from rankscope.hub.diagnose.gpu_throttled import gpu_throttled
from rankscope.hub.diagnose.gradient_outlier import gradient_outlier
from rankscope.hub.diagnose.hangs import hangs
from rankscope.hub.diagnose.link_lost import link_lost
from rankscope.hub.diagnose.memory import memory
from rankscope.hub.diagnose.nonfinite import nonfinite
from rankscope.hub.diagnose.paths import with_paths
from rankscope.hub.diagnose.rank_dead import rank_dead
from rankscope.hub.diagnose.rank_stopped import rank_stopped
from rankscope.hub.diagnose.ranks_orphaned import ranks_orphaned
from rankscope.hub.diagnose.replica_divergence import replica_divergence
from rankscope.hub.diagnose.silent_skip import silent_skip
from rankscope.hub.diagnose.straggler import straggler
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import HANGS, SEVERITIES, Finding

Diagnosis = Callable[[RunState, float], list[Finding]]

DIAGNOSES: tuple[Diagnosis, ...] = (
    rank_dead,
    rank_stopped,
    link_lost,
    exception,
    ranks_orphaned,
    duplicate_rank,
    nonfinite,
    gradient_outlier,
    replica_divergence,
    silent_skip,
    duplicate_data,
    straggler,
    memory,
    gpu_throttled,
    gpu_errors,
    environment_mismatch,
    duplicate_seed,
    checkpoint_failed,
    checkpoint_slow,
)


def diagnose(state: RunState, now_s: float) -> list[Finding]:
    """All that is wrong at ``now_s``, in the order of the registry; hangs with it in mind."""
    known = [finding for kind in DIAGNOSES for finding in kind(state, now_s)]
    found = hangs(state, known, now_s)
    return with_paths(state, [*found, *gpu_spinning(state, found, now_s)])


def gravest(findings: list[Finding], *, stands: bool = False) -> Finding | None:
    """The verdict: the first of the highest severity.

    Of a run that ``stands`` still, before that has a critical verdict, what may be why goes first,
    a mere notice, too: no warning of something else says anything of that.
    """
    if not findings:
        return None

    def weight(finding: Finding) -> tuple[bool, bool, int]:
        tells = stands and finding.kind in HANGS
        return finding.severity == "critical", tells, SEVERITIES.index(finding.severity)

    return max(findings, key=weight)
