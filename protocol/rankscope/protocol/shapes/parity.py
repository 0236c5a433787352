"""Whether a restarted run is what it was before."""

from rankscope.protocol.shapes.base import Shape


class ParityDifference(Shape):
    """Where a run that went on is not what it was before."""

    step: int
    rank: int
    what: str
    """``loss``; or ``batch`` when the rank was given other data."""
    before: float | str
    """The loss; of a batch its fingerprint, in hexadecimal."""
    now: float | str


class Parity(Shape):
    """Whether the losses and the data of an attempt are those of the attempts before, bit for bit.

    Compared are the steps that both have told; of data those that are fingerprinted.
    """

    text: str
    """In one line: ``parity: 12 steps bitwise equal (13 to 24)``."""
    over: bool = False
    """Nothing more will be compared."""
    steps: int = 0
    """Equal on all ranks, before the first difference."""
    first_step: int | None = None
    last_step: int | None = None
    batches: int = 0
    """Steps among them whose data were compared, too."""
    difference: ParityDifference | None = None
