"""Phases in sentences."""

OUTSIDE = "outside forward, backward and optimizer"
"""Where a rank is whose phase is ``other``: in what its loop does beside training."""


def in_phase(phase: str) -> str:
    """``in backward``; of the phase that is none of training's, what that means."""
    return OUTSIDE if phase == "other" else f"in {phase}"
