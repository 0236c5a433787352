"""What a rank should hold by the table of memory, from what ranks say of their model."""

from typing import NamedTuple

from rankscope.hub.state import RunState
from rankscope.protocol import budget

WAYS = {
    "single": "on one device",
    "ddp": "whole on each rank",
    "zero1": "optimizer state over {ranks} ranks",
    "fsdp": "fully sharded over {ranks} ranks",
    "hybrid": "sharded over {shard} of {ranks} ranks",
}


class Prediction(NamedTuple):
    state_bytes: float
    words: str


def predicted(state: RunState, rank: int) -> Prediction | None:
    """None where the rank has not said enough, or nothing that makes sense."""
    identity = state.ranks.identity.item(rank)
    if identity < 0:
        return None
    facts = dict(state.words.identities.values[identity].facts)
    try:
        return prediction(
            facts["parameters"], facts["state_factors"], facts["spread"], state.world_size
        )
    except (KeyError, ValueError, TypeError):
        return None


def prediction(parameters: str, factors: str, spread: str, ranks: int) -> Prediction:
    """From the facts as a rank tells them. Raises ``ValueError`` for what cannot be."""
    count = int(parameters)
    parameter, gradient, optimizer = (float(value) for value in factors.split(","))
    inventory = budget.Inventory(parameter, gradient, optimizer)
    scheme, _, rest = spread.partition(" ")
    shard = int(rest) if rest else None
    if not 0 < count < 1 << 53 or not 0 < inventory.all < 1e6 or scheme not in WAYS:
        raise ValueError("not a model")
    each = "+".join(
        f"{value:.4g}" for value in (inventory.parameter, inventory.gradient, inventory.optimizer)
    )
    way = WAYS[scheme].format(ranks=ranks, shard=shard)
    told = f"{count:,}".replace(",", " ")
    return Prediction(
        budget.state_bytes(scheme, count, ranks, inventory, shard),
        f"{told} parameters × ({each}) bytes, {way}",
    )
