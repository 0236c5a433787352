"""What is said of a command that was asked to end and goes on."""

import signal

from rankscope.tui.launcher.unheeded import AFTER_S, Unheeded


def test_it_is_said_once_for_each_signal_and_not_at_once() -> None:
    """Most commands have ended by then; another signal is another question."""
    unheeded = Unheeded()
    assert unheeded.words(100.0) is None
    unheeded.asked(signal.SIGINT, 100.0)
    assert unheeded.words(100.0 + AFTER_S / 2) is None
    unheeded.asked(signal.SIGINT, 101.0)
    words = unheeded.words(100.0 + AFTER_S)
    assert words is not None
    assert "SIGINT" in words
    assert unheeded.words(110.0) is None
    unheeded.asked(signal.SIGTERM, 110.0)
    assert "SIGTERM" in (unheeded.words(114.0) or "")
    assert unheeded.words(120.0) is None
