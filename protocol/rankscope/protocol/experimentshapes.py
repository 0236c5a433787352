"""What ``rankscope compare --json`` and ``rankscope scale --json`` print."""

from rankscope.protocol.shapes import Shape


class CompareRow(Shape):
    """One trainer in one setting."""

    trainer: str
    layers: int
    dim: int
    precision: str
    recompute: str
    reshard_after_forward: bool | None
    """None for DDP, which gathers nothing."""
    parameters: int
    refused: str
    """Why it was not trained, with the figure that does not fit; empty when it was."""
    placements: dict[str, int]
    """How parameters lie over the ranks: how many tensors each way."""
    factors: list[float]
    """Bytes a parameter: parameter, gradient, optimizer."""
    state_bytes: int | None
    """Parameters, gradients and optimizer state of the rank that has most of them."""
    state_bytes_by_rank: list[int]
    predicted_state_bytes: float | None
    counter_bytes: int | None
    """On top of it: the optimizer's counts of steps, one a tensor."""
    peak_bytes: int | None
    """The most tensor bytes at once in an update, on the rank that had most."""
    peak_bytes_by_rank: list[int]
    predicted_peak_bytes: float | None
    """At most: the state, ``activation_bytes`` and ``gather_bytes``."""
    activation_bytes: float | None
    gather_bytes: float | None
    step_s: float | None
    """Median of the timed updates."""
    step_s_low: float | None
    step_s_high: float | None
    losses: list[float]
    final_loss: float | None
    relative_difference: float | None
    """Of the final loss, from that of DDP in the same setting."""
    same_batches: bool | None
    """Whether every rank had the batches that it had under DDP; None where one was not trained."""
    sent_bytes: float | None
    """By a rank for one update, by the ring formulas."""
    counted_sent_bytes: float | None
    """The same for the collectives that the flight recorder has."""


class Comparison(Shape):
    """DDP beside FSDP2."""

    ranks: int
    cores: int
    device: str
    backend: str
    updates: int
    timed_updates: int
    batch_size: int
    seq_len: int
    memory_limit_bytes: float | None
    rows: list[CompareRow]
    notes: list[str]


class ScaleRow(Shape):
    """One number of ranks."""

    ranks: int
    batch_size: int
    """Sequences of a rank in an update."""
    update_s: float | None
    """Median of whole updates, on the slowest rank."""
    update_s_low: float | None
    update_s_high: float | None
    tokens: float | None
    """With a target, of all ranks in an update, on average."""
    tokens_per_s: float | None
    speedup: float | None
    """T1/TR, of the time for the same number of tokens; None unless both were measured."""
    efficiency: float | None
    """T1/(R·TR)."""
    state_bytes_by_rank: list[int]
    peak_bytes_by_rank: list[int]
    sent_bytes: float | None
    """By a rank for one update, by the ring formulas."""
    counted_sent_bytes: float | None
    """The same for the collectives that the flight recorder has."""
    calls: dict[str, int]
    """Collectives of one update, by operation."""
    oversubscribed: bool
    """There are more ranks than cores: they take turns."""
    failed: str
    """Why there are no figures; empty when there are."""


class Scaling(Shape):
    """The same training on more and more ranks."""

    mode: str
    trainer: str
    cores: int
    device: str
    backend: str
    parameters: int
    timed_updates: int
    seq_len: int
    rows: list[ScaleRow]
    notes: list[str]
