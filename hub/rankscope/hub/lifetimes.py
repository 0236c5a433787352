"""When a hub ends by itself. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lifetimes:
    """Durations in seconds; SPEC.md states the defaults."""

    linger_s: float = 60.0
    """After the last rank ended, the run may be restarted by its launcher within this time."""
    client_left_s: float = 10.0
    """A client that has sent nothing for this long has left."""
    after_run_end_s: float = 5.0
    """After the launcher's word that nothing will come, clients may look for this long."""
    nobody_s: float = 600.0
    """Without a word from any rank or sentinel for this long, none is expected."""

    def reason_to_end(
        self,
        now_s: float,
        *,
        started_s: float,
        run_end_s: float | None,
        ranks_ended_s: float | None,
        heard_s: float | None,
        client_s: float | None,
    ) -> str:
        """Why the hub ends now, in words; empty while it goes on.

        ``ranks_ended_s`` is when the last rank ended (None while one lives or none came),
        ``heard_s`` and ``client_s`` when a rank or sentinel, and a client, was heard last.
        """
        client_s = -float("inf") if client_s is None else client_s
        if run_end_s is not None:
            quiet_since_s = max(run_end_s, started_s, client_s)
            return "the run has ended" if now_s - quiet_since_s >= self.after_run_end_s else ""
        if now_s - client_s < self.client_left_s:
            return ""
        if ranks_ended_s is not None:
            over = now_s - max(ranks_ended_s, started_s) >= self.linger_s
            return "all ranks have ended and no client is left" if over else ""
        silent_since_s = max(started_s, heard_s or 0.0)
        if now_s - silent_since_s >= self.nobody_s:
            return f"no rank was heard of for {self.nobody_s:.0f} s and no client is left"
        return ""
