"""Rank rows from the columns."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.hub import liveness
from rankscope.hub.diagnose.text import PHASE_WORDS, ended_text
from rankscope.hub.state import RunState
from rankscope.hub.state.ranks import PROCESS_WORDS
from rankscope.protocol.shapes import RankRow


def rank_rows(
    state: RunState, now_s: float, wanted: Sequence[int] | None, grad_norm: float | None
) -> list[RankRow]:
    """The rows of the ranks ``wanted`` (None for all).

    ``grad_norm`` is the global norm of the run, for ranks that hold shards.
    """
    index = np.arange(state.size()) if wanted is None else np.asarray(wanted, dtype=np.int64)
    ranks = state.ranks
    over = ranks.over()[index]
    # The goodbye comes first, and its process ends when the interpreter is done.
    since_s = np.where(
        over, np.fmin(ranks.goodbye_s[index], ranks.ended_s[index]), ranks.phase_since_s[index]
    )
    hosts = state.words.hosts.values
    codes = liveness.links(state, now_s)[index]
    columns = zip(
        index.tolist(),
        ranks.host[index].tolist(),
        ranks.pid[index].tolist(),
        ranks.step[index].tolist(),
        ranks.phase[index].tolist(),
        over.tolist(),
        _known(np.maximum(0.0, now_s - since_s)),
        codes.tolist(),
        _known(ranks.step_s[index]),
        ranks.loss[index].tolist(),
        (ranks.loss_step[index] > 0).tolist(),
        ranks.grad_norm[index].tolist(),
        (ranks.grad_step[index] > 0).tolist(),
        ranks.grad_sharded[index].tolist(),
        ranks.memory_peak_bytes[index].tolist(),
        ranks.local_rank[index].tolist(),
        ranks.microbatch[index].tolist(),
        ranks.process[index].tolist(),
        _known(np.maximum(0.0, now_s - ranks.heard_s[index])),
        _known(ranks.tokens_per_s[index]),
        ranks.dropped[index].tolist(),
        state.sequences.missed[index].tolist(),
        strict=True,
    )
    faults = state.words.probe_faults
    expecting = state.progress.expecting
    return [
        RankRow(
            rank=rank,
            host=hosts[host] if 0 <= host < len(hosts) else "",
            pid=pid if pid >= 0 else None,
            step=step,
            phase="ended" if ended else PHASE_WORDS[phase],
            phase_s=phase_s,
            link=liveness.LINKS[link],
            step_s=step_s,
            loss=loss if has_loss else None,
            grad_norm=grad_norm if sharded else (norm if has_norm else None),
            memory_peak_bytes=peak if peak >= 0 else None,
            local_rank=local_rank if local_rank >= 0 else None,
            microbatch=microbatch,
            process=PROCESS_WORDS[process],
            ended=ended_text(state, rank) if ended else "",
            heard_s=heard_s,
            tokens_per_s=tokens_per_s,
            dropped=dropped,
            missed=missed,
            probes_off=sorted(faults[rank]) if rank in faults else [],
            expecting=expecting.get(rank, "") if expecting and not ended else "",
        )
        for (
            rank,
            host,
            pid,
            step,
            phase,
            ended,
            phase_s,
            link,
            step_s,
            loss,
            has_loss,
            norm,
            has_norm,
            sharded,
            peak,
            local_rank,
            microbatch,
            process,
            heard_s,
            tokens_per_s,
            dropped,
            missed,
        ) in columns
    ]


def _known(values: NDArray[np.float64]) -> list[float | None]:
    """NaN is "not known" here; ages and durations are never NaN otherwise."""
    return [None if value != value else value for value in values.tolist()]
