"""The objective: the loss of all valid tokens of an update over the number of them, on all ranks.

With ``S_r`` the summed loss of rank r and ``T`` the number of valid tokens of all ranks, the loss
is ``sum(S_r) / T``. Data-parallel wrappers average the gradients of R ranks, so rank r
backpropagates ``R·S_r/T``, and the average is the gradient of that loss, however unequal the ranks'
counts are. (A mean per rank would weigh a token of a nearly empty rank more than one of a full
rank: with 2 and 6 tokens and means of 3 and 1 it gives 2, not 1.5.) The same holds for the
microbatches of an update.
"""

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from rankscope.trainers.data import IGNORED, Batch


def valid_tokens(window: Sequence[Batch]) -> int:
    """How many tokens of this rank's microbatches have a target."""
    return sum(int((targets != IGNORED).sum()) for _, targets in window)


def loss_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Summed cross entropy in nats of the valid tokens, fp32.

    ``logits`` has shape (batch, seq, vocabulary), ``targets`` (batch, seq). Without a valid token
    it is a zero with a gradient of zeros, so a rank with nothing to learn keeps the collectives
    going.
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def share(total: Tensor, ranks: int, tokens: int) -> Tensor:
    """``R·S/T``: what this rank backpropagates of its summed loss ``total``."""
    return total * (ranks / tokens)
