"""The same training on more and more ranks: batches, and what their times come to."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from rankscope.protocol.exits import UserError
from rankscope.protocol.experiments import Measured
from rankscope.protocol.experimentshapes import ScaleRow
from rankscope.tui.experiments.comparing import counted, slowest

MODES = ("strong", "weak")
SEQUENCES = 16
"""An update of strong scaling, at least, where nothing is said."""
SEQUENCES_A_RANK = 8
"""Of weak scaling."""


def batch_sizes(mode: str, ranks: Sequence[int], asked: int | None) -> dict[int, int]:
    """Sequences of a rank in an update, for each number of ranks.

    ``asked`` is those of an update, on all ranks together (strong), or of each rank (weak). Raises
    :class:`UserError` when they do not divide.
    """
    if mode == "weak":
        return dict.fromkeys(ranks, asked or SEQUENCES_A_RANK)
    together = math.lcm(*ranks)
    total = asked or math.ceil(SEQUENCES / together) * together
    if total % together:
        raise UserError(
            f"--batch-size {total} does not divide by every one of "
            f"{', '.join(map(str, ranks))} ranks; use a multiple of {together}"
        )
    return {size: total // size for size in ranks}


def rows(
    batches: Mapping[int, int],
    found: Mapping[int, Sequence[Measured]],
    failed: Mapping[int, str],
    cores: int,
) -> list[ScaleRow]:
    """A row for each number of ranks; speed-ups are relative to one rank, where that was measured.

    The time is that for the same number of tokens, so that the two modes read alike: with strong
    scaling an update has as many on any number of ranks, with weak scaling R times as many.
    """
    made = [
        _row(ranks, batch, found.get(ranks, ()), failed.get(ranks, ""), cores)
        for ranks, batch in batches.items()
    ]
    one = next((row.tokens_per_s for row in made if row.ranks == 1), None)
    for row in made:
        if one and row.tokens_per_s:
            row.speedup = row.tokens_per_s / one
            row.efficiency = row.speedup / row.ranks
    return made


def _row(ranks: int, batch: int, found: Sequence[Measured], failed: str, cores: int) -> ScaleRow:
    times = slowest(found)
    update_s = median(times) if times else None
    tokens = found[0].tokens / len(times) if times else None
    first = found[0] if found else None
    sent = first.sent if first else None
    predicted = first.predicted if first else None
    return ScaleRow(
        ranks=ranks,
        batch_size=batch,
        update_s=update_s,
        update_s_low=min(times, default=None),
        update_s_high=max(times, default=None),
        tokens=tokens,
        tokens_per_s=tokens / update_s if tokens is not None and update_s else None,
        speedup=None,
        efficiency=None,
        state_bytes_by_rank=[rank.state.table for rank in found if rank.state is not None],
        peak_bytes_by_rank=[rank.peak_bytes for rank in found if rank.peak_bytes is not None],
        sent_bytes=predicted.sent if predicted else None,
        counted_sent_bytes=counted(first) if first else None,
        calls=sent.calls if sent else {},
        oversubscribed=first is not None and first.device == "cpu" and ranks > cores,
        failed=failed,
    )
