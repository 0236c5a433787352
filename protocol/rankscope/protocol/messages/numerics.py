"""What is not finite in a rank, the gradient of each parameter, and replicas' checksums."""

from enum import IntEnum
from typing import Annotated

from msgspec import Meta

from rankscope.protocol import limits
from rankscope.protocol.messages.base import Count, FromRank, Message, Name, Text


class Stage(IntEnum):
    """Where in a step a number was looked at, in the order in which a step goes through them."""

    INPUT = 1
    PARAMETER = 2
    """Before the update that the step ends with."""
    FORWARD = 3
    """A module's output."""
    LOSS = 4
    GRADIENT = 5
    """This rank's own, before any reduction."""
    CAST = 6
    """The same, in the type in which it is reduced."""
    REDUCED = 7
    """After the reduction (and before clipping, where that could be seen)."""
    OPTIMIZER = 8
    """The optimizer's state, before the update."""
    UPDATED = 9
    """The parameter after the update."""


class Sign(Message, frozen=True):
    """A number that is not as it should be, where it was seen on this rank."""

    stage: Stage
    step: Count
    """The step in work, from 1."""
    microbatch: Count
    """From 1; 0 when it is not of one microbatch."""
    name: Text
    """The parameter or module, as the user's model names it; of an input its place, such as
    ``args[0]``; empty when it is of none."""
    value: Name
    """``nan``, ``inf`` or ``-inf``, the worst of them in that order; or a finite number in words
    where that is the trouble."""
    count: Count = 0
    """How many elements; 0 when that was not counted."""
    others: Count = 0
    """How many more names show the same at this stage, not listed."""
    note: Text = ""
    """What else is known, in words: ``largest 1e+06, float16 ends at 65504``."""


class Signs(FromRank, frozen=True):
    """What was seen in one step of what is not finite, in the order in which it was seen.

    Sent at once. A rank that goes on seeing the same says so again with each step, shortly.
    """

    step: Count
    signs: Annotated[tuple[Sign, ...], Meta(max_length=limits.MAX_SIGNS)]
    looked: Annotated[tuple[Stage, ...], Meta(max_length=16)] = ()
    """The stages that were looked at in this step, so that none of the others was cleared."""


class Checksum(Message, frozen=True):
    name: Text
    value: Count
    """Of the bits of the tensor: one flipped bit changes it. Equal for equal bits on any rank."""
    buffer: bool = False
    """Of a buffer, which replicas need not have alike."""


class Checksums(FromRank, frozen=True):
    """This rank's replica at the end of a step: to be equal on all ranks of ``replicas``."""

    step: Count
    first: Count
    """The index of the first tensor of ``values``: a large model is gone through in parts, which
    are the same for all ranks at the same step."""
    total: Count
    """One checksum over all parameters of the part; buffers are left out."""
    values: Annotated[tuple[Checksum, ...], Meta(max_length=limits.MAX_CHECKSUMS)] = ()
    """Empty in a large world, until asked for."""
    replicas: Name = "world"
    """The ranks that hold the same: ``world``, or a name that all of them share."""
    altered: Annotated[tuple[Text, ...], Meta(max_length=limits.MAX_CHECKSUMS)] | None = None
    """Parameters that were written to, or whose bits changed, between the end of the step before
    and this step's update: on this rank, whatever the others have. None: not compared.
    """


class ParameterNorm(Message, frozen=True):
    name: Text
    local_norm: float | None
    """Of this rank's own gradient before reduction."""
    value: Name = ""
    """``nan`` or ``inf`` where it is not finite."""


class ParameterNorms(FromRank, frozen=True):
    """The gradient of each parameter in one step. Sent when asked for, and with signs."""

    step: Count
    norms: Annotated[tuple[ParameterNorm, ...], Meta(max_length=limits.MAX_PARAMETERS)]
    left_out: Count = 0
