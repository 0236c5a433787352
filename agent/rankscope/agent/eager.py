"""Keeping what is ours out of what dynamo compiles.

Where a compiled function runs eagerly for a while (around a graph break, within torch's own
containers), dynamo looks at each Python function called there as something to compile by itself.
Torch's own it leaves alone, and ours it must leave alone as well: else a layer that was computed
eagerly would be compiled, because we stand around it.
"""

from collections.abc import Callable
from types import CodeType
from typing import Any


def _no_callback() -> None:
    return None


try:
    from torch._C._dynamo import eval_frame as _eval_frame

    callback: Callable[[], Any] = _eval_frame.get_eval_frame_callback
    """Not None where dynamo looks at what is called."""
except (ImportError, AttributeError):  # of torch's own, and not promised
    callback = _no_callback


def never_compiled(code: CodeType, *, within: bool = False) -> None:
    """Frames of ``code`` run as they are, unless they are traced as part of what calls them.

    What they call is treated as ever, or with ``within`` the same way.
    """
    try:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )

        called = _FrameAction.SKIP if within else _FrameAction.DEFAULT
        strategy = _FrameExecStrategy(_FrameAction.SKIP, called)
        set_code_exec_strategy(code, strategy)
    except (ImportError, AttributeError, TypeError):  # of torch's own, and not promised
        return
