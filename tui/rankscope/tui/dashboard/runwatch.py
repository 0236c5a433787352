"""The runs there are, looked for in a thread of its own: a slow disk must not hold up a key."""

import threading
import time
from collections.abc import Callable, Sequence

from rankscope.tui.runs import ListedRun

LOOK_EVERY_S = 2.0
SELDOM_S = 6.0
"""The same while nobody looks at the list, but at a run that is over."""


class RunWatch:
    """``look`` lists the runs; without it there are none to choose from."""

    def __init__(self, look: Callable[[], Sequence[ListedRun]] | None = None) -> None:
        self._look = look
        self._thread: threading.Thread | None = None
        self._looked_t_s = -1e9
        self.latest: Sequence[ListedRun] | None = None if look is not None else ()
        """None until they were looked for."""
        self.error = ""

    def wanted(self, every_s: float = LOOK_EVERY_S) -> None:
        """Somebody looks at them: look again if that was ``every_s`` ago. Returns at once."""
        busy = self._thread is not None and self._thread.is_alive()
        if self._look is None or busy or time.monotonic() - self._looked_t_s < every_s:
            return
        self._thread = threading.Thread(target=self._run, name="rankscope-runs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self._look is not None
        try:
            self.latest, self.error = self._look(), ""
        except OSError as error:
            self.latest, self.error = self.latest or (), str(error)
        self._looked_t_s = time.monotonic()


def begun_since(runs: Sequence[ListedRun], run: str) -> str:
    """That another run is live which began after ``run``, and where it is; empty while none is."""
    own_s = next((one.created_s for one in runs if one.run == run), None)
    if own_s is None:
        return ""
    later = [
        one
        for one in runs
        if one.state in ("starting", "live") and one.created_s is not None and one.created_s > own_s
    ]
    return "a run has begun since: 9 lists it" if later else ""
