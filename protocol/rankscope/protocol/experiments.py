"""Experiments: what a measuring program is told, and what each of its ranks writes down.

The program runs under a launcher, ``python -m rankscope.trainers.experiments.measure JOB FOLDER``:
``JOB`` is a :class:`Job` as JSON, and rank R writes one :class:`Measured` a line, as JSON, to
``FOLDER/rank-R.jsonl``, a line for each case in turn.
"""

from typing import Literal

import msgspec

TrainerName = Literal["ddp", "fsdp2"]

UPDATES_COUNTED = 2
"""So many updates at the beginning of a case are made with every tensor counted, and not timed:
the first brings the optimizer's state into being, the second is as all that follow."""


class Case(msgspec.Struct, kw_only=True, frozen=True):
    """One training to be measured: a trainer, a model and how it computes."""

    trainer: TrainerName
    layers: int
    dim: int
    heads: int
    seq_len: int
    """Tokens a sequence."""
    batch_size: int
    """Sequences in a microbatch of one rank."""
    accumulate: int = 1
    """Microbatches in an update."""
    precision: Literal["fp32", "bf16"] = "fp32"
    recompute: Literal["none", "selective", "full"] = "none"
    reshard_after_forward: bool = True
    """Of FSDP2; without meaning for DDP."""


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """Cases that the same ranks run one after the other."""

    cases: list[Case]
    updates: int
    """Of each case, those that are not timed included."""
    untimed: int
    """So many of them, at the beginning, are not timed: the counted ones and the warm-up."""
    limit_bytes: int | None = None
    """Tensors that a rank may have; a case that needs more is refused."""
    predict: bool = True
    """Whether activations are measured on a plain model first, to predict peaks."""
    seed: int = 0
    text: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"


class StateBytes(msgspec.Struct, kw_only=True):
    """What a rank keeps from update to update, in bytes of storage, each storage once."""

    parameters: int
    gradients: int
    """As the optimizer finds them."""
    optimizer: int
    counters: int = 0
    """Of the optimizer, too: what does not grow with a parameter, such as its count of steps."""
    buffers: int = 0

    @property
    def table(self) -> int:
        """The part of it that the table of memory is about."""
        return self.parameters + self.gradients + self.optimizer


class Predicted(msgspec.Struct, kw_only=True):
    """What arithmetic says of a rank before it trains; bytes."""

    factors: tuple[float, float, float]
    """Bytes a parameter: parameter, gradient, optimizer."""
    state: float
    """``state_bytes`` of the table, of these factors."""
    gather: float = 0.0
    """Gathered parameters, their gradients and what those are reduced in, at most at once."""
    activation: float | None = None
    """Measured on a plain model: what forward and backward take beside parameters and gradients."""
    peak: float | None = None
    """At most; None without ``activation``."""
    sent: float = 0.0
    """For one update, by the ring formulas."""


class Sent(msgspec.Struct, kw_only=True):
    """What one update sent, as the flight recorder counted its collectives."""

    calls: dict[str, int] = {}
    """By operation: how often it was called."""
    size_bytes: dict[str, int] = {}
    """By operation: bytes of the whole tensors."""
    sent: float = 0.0
    """Bytes that this rank sends for them over a ring."""
    note: str = ""
    """Why there is no count, in words; empty when there is one."""


class Measured(msgspec.Struct, kw_only=True):
    """What one rank found in one case."""

    rank: int
    ranks: int
    case: int
    """Its place in the job."""
    device: str
    backend: str = ""
    refused: str = ""
    """Why it was not trained, or not on, with the figure that does not fit; empty when it was."""
    parameters: int = 0
    """Of the whole model."""
    tensors: int = 0
    placements: dict[str, int] = {}
    """How parameters lie over the ranks, ``Replicate`` or ``Shard(0)``: how many tensors each."""
    predicted: Predicted | None = None
    state: StateBytes | None = None
    peak_bytes: int | None = None
    """The most tensor bytes at once in an update, the state included."""
    losses: list[float] = []
    """Of each update: the mean over the tokens of all ranks."""
    batches_crc32: int = 0
    """Over the inputs of all updates of this rank."""
    step_s: list[float] = []
    """Of each timed update, whole."""
    tokens: int = 0
    """With a target, in the timed updates, of all ranks."""
    sent: Sent | None = None


def encode(value: Job | Measured) -> bytes:
    return msgspec.json.encode(value)


def decode_job(data: bytes) -> Job:
    """Raises ``msgspec.DecodeError`` for what is none."""
    return msgspec.json.decode(data, type=Job)


def decode_measured(line: bytes) -> Measured:
    """Raises ``msgspec.DecodeError`` for what is none."""
    return msgspec.json.decode(line, type=Measured)
