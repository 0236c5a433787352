"""Whether a well-formed message can be true: the reason why not, in words; empty when it can.

An agent's key can say anything. What is turned down here would cost memory, overflow a count, or
make other senders' next messages look old.
"""

from rankscope.hub.state.columns import MAX_SIZE
from rankscope.hub.state.sequences import MAX_JUMP
from rankscope.protocol import messages as m

MAX_EXIT = 1 << 32
"""No exit code and no signal is as large."""


class BadMessage(ValueError):
    """A well-formed message that cannot be true, in words; it changed nothing."""


def lie_of_rank(message: m.FromRank, run: str, world_size: int, last_seq: int) -> str:
    """Of a rank whose newest message was ``last_seq``, in a world of that size (0: unknown)."""
    rank = message.rank
    if rank >= MAX_SIZE:
        return f"rank {rank}: there are rows for {MAX_SIZE}"
    if isinstance(message, m.Hello):
        if message.run != run:
            return f"rank {rank} says it is of run {message.run}"
        world_size = message.world_size
    if 0 < world_size <= rank:
        return f"rank {rank} in a world of {world_size}"
    return _leap(f"rank {rank}", message.seq, last_seq)


def lie_of_node(message: m.FromNode, run: str, last_seq: int) -> str:
    """Of a sentinel whose newest message was ``last_seq``."""
    if isinstance(message, m.NodeHello) and message.run != run:
        return f"a sentinel on {message.host} says it is of run {message.run}"
    if isinstance(message, m.ProcessEnded):
        if message.rank >= MAX_SIZE:
            return f"rank {message.rank}: there are rows for {MAX_SIZE}"
        code, signal = message.exit_code, message.signal
        if abs(code or 0) > MAX_EXIT or abs(signal or 0) > MAX_EXIT:
            return f"rank {message.rank} ended with {code}, {signal}"
    return _leap(f"sentinel {message.node}", message.seq, last_seq)


def _leap(who: str, seq: int, last_seq: int) -> str:
    return f"{who}: message {seq} after {last_seq}" if seq - last_seq > MAX_JUMP else ""
