"""A scheduler's warning signal asks nobody to end, and makes nobody impatient."""

import os
import signal
import sys
from collections.abc import Sequence

import pytest

from rankscope.tui.launcher.child import ASK, WARNINGS, Child, Signals
from support.runs import wait_until

pytestmark = pytest.mark.processes

HEEDS = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(7)))\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)\n"
)


def came(signals: Signals, numbers: Sequence[int]) -> None:
    """All of ``numbers`` have reached this process."""
    for number in numbers:
        os.kill(os.getpid(), number)
    wait_until(lambda: len(signals._came) == len(numbers) or None, "the signals")


@pytest.mark.parametrize("warning", WARNINGS)
def test_a_warning_is_no_reason_to_end_or_to_show_no_dashboard(warning: int) -> None:
    """It waits for whoever passes it on."""
    with Signals() as signals:
        came(signals, [warning])
        assert not signals
        assert signals.take(ASK) == []
        assert signals.take() == [warning]


@pytest.mark.parametrize("number", [number for number in ASK if number != signal.SIGQUIT])
def test_what_asks_for_an_end_is_one_whatever_was_warned_of(number: int) -> None:
    """Before it or after."""
    with Signals() as signals:
        came(signals, [signal.SIGUSR1, number])
        assert signals
        assert signals.take(ASK) == [number]
        assert not signals


@pytest.mark.parametrize(("numbers", "code"), [((signal.SIGUSR1,), 7), ((), 7)])
def test_a_command_that_is_being_ended_is_not_killed_for_a_warning(
    numbers: Sequence[int], code: int
) -> None:
    """It has its whole time to end in order; only who asks again is impatient."""
    read, write = os.pipe()
    with Signals() as signals, os.fdopen(write, "wb") as output:
        child = Child([sys.executable, "-c", HEEDS], os.environ, output)
        assert os.read(read, 5) == b"ready"
        came(signals, numbers)
        assert child.end(60.0, signals) == code
    os.close(read)
