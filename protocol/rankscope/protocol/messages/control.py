"""An operator's request on its way to the ranks, and how far they are with it or with a save."""

from rankscope.protocol.messages.base import Bytes, Count, FromRank, Message, Name, Text


class Saving(FromRank, frozen=True):
    """How far this rank's checkpoint is, and what came of it. Sent as it changes."""

    step: Count
    """The step that is saved; 0 when none is."""
    request: Count
    """The operator's request that it answers; 0 for one that was not asked for."""
    phase: Name
    """``idle``, ``staging``, ``waiting``, ``writing``, ``syncing``, ``publishing``, ``done`` or
    ``failed``."""
    phase_t_s: float
    done_bytes: Bytes = 0
    total_bytes: Bytes = 0
    rate_bytes_per_s: float | None = None
    text: Text = ""
    """What came of it in words; of ``idle`` how far the pending request is."""
    path: Text = ""
    """Of the checkpoint, once it is ``done``."""
    culprit: int = -1
    """The rank in which it failed; -1 for none in particular."""
    culprit_phase: Name = ""
    pending: Count = 0
    """The request that the ranks are agreeing on; 0 for none."""
    notfinite: Text = ""
    """What of the parameters in the checkpoint is not finite, in words; empty when nothing is."""


class Controlled(FromRank, frozen=True):
    """How far this rank is with what an operator asked for, or what came of it here.

    Sent as it changes, by every rank whose loop has ended a step by ``end_step``.
    """

    phase: Name
    """``idle``; of a request in work ``waiting`` (for all ranks to hear of it), ``agreeing``,
    ``agreed``, ``arrived`` (at the boundary, for the others to come), ``paused`` or ``saving``
    (held there until the checkpoint is out); of one that is over ``done``, ``given-up`` or
    ``cancelled``.
    """
    phase_t_s: float
    request: Count = 0
    """Of what is told here; 0 when there is none."""
    command: Name = ""
    author: Name = ""
    boundary: Count = 0
    """The boundary that was agreed on: the step it comes after; 0 before."""
    expires_s: float | None = None
    """Of ``paused``: how long from now until it ends by itself."""
    text: Text = ""
    """In words, what it waits for or what came of it."""
    saver: bool = False
    """Whether there is a checkpointer."""
    unable: Text = ""
    """Why this rank cannot follow requests; empty when it can."""
    stop_step: Count = 0
    """The boundary at which the loop was told to stop; 0 when it was not."""
    overrun: Count = 0
    """How many boundaries it has passed since: such a loop does not look at ``should_stop``."""


class Order(Message, frozen=True):
    """An operator's request, for all ranks: they agree on the boundary at which they follow it."""

    command: Name
    """``checkpoint``, ``checkpoint-and-stop``, ``stop`` or ``pause``; or ``resume`` or ``cancel``,
    which need no agreement."""
    request: Count
    """Grows from one request to the next, over restarts of the hub, too."""
    expires_s: float
    """From now; then it is given up if the ranks have not agreed."""
    author: Name = ""
    target: Count = 0
    """Of ``resume`` and ``cancel``: the request that they end; 0 for a save nobody asked for."""
    lasts_s: float = 0.0
    """Of ``pause``: when nobody resumes, it ends by itself after so long."""
