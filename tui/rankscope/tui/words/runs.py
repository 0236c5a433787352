"""How a run of the list is, in a glyph and a few words."""

from rankscope.tui.runs import ListedRun
from rankscope.tui.words.marks import SEVERITIES, Mark, safe

STATES: dict[str, Mark] = {
    "starting": Mark("◌", "starting", "quiet"),
    "live": Mark("●", "live", "good"),
    "ended": Mark("■", "ended", "quiet"),
    "stale": Mark("◌", "stale", "warn"),
    "unreadable": Mark("✗", "unreadable", "bad"),
}


def verdict(run: ListedRun) -> Mark:
    """What its log says last, or how it ended."""
    if run.state == "unreadable":
        return Mark("✗", safe(run.note), "bad")
    if run.hub_stopped is not None and run.state == "live":
        told = f"its hub is stopped: kill -CONT {run.hub_stopped}"
        if run.severity in ("warning", "critical"):
            told += f"; last known: {safe(run.headline)}"
        return Mark("○", told, "warn")
    if run.severity in ("warning", "critical"):
        mark = SEVERITIES[run.severity]
        return Mark(mark.glyph, safe(run.headline), mark.tone)
    if run.state == "starting" or (run.state == "live" and not run.world_size):
        return Mark("◌", "no rank yet", "quiet")
    if run.paused_by:
        return Mark("‖", f"pause by {safe(run.paused_by)}", "warn")
    if run.state == "live":
        return Mark("✓", "no open finding", "good")
    if run.state == "stale":
        return Mark("◌", "its hub is gone without a word", "warn")
    if run.stopped_by and not run.exit_code:
        return Mark("■", f"stopped by {safe(run.stopped_by)}", "quiet")
    if run.exit_code is None:
        return Mark("■", "ended", "quiet")
    if run.exit_code == 0:
        return Mark("✓", "finished", "good")
    return Mark("✗", f"failed, exit code {run.exit_code}", "bad")
