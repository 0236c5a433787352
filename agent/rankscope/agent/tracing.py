"""Whether torch is recording what is computed right now, or computing on stand-ins.

There a number read by us would end up in the user's graph, or could not be read at all. Dynamo is
not asked about here: to it everything of ours is a constant that does nothing.
"""

import torch

_dispatching = torch._C._len_torch_dispatch_stack
_tracing = torch._C._get_tracing_state
_transforming = torch._C._functorch.peek_interpreter_stack


def recorded() -> bool:
    """Under ``jit.trace``, ``torch.export``, ``make_fx``, ``vmap`` and their like."""
    return _dispatching() > 0 or _tracing() is not None or _transforming() is not None
