"""All checks of ``rankscope doctor``, in the order in which they are shown."""

from collections.abc import Callable

from rankscope.tui.doctor.check import Check
from rankscope.tui.doctor.gpu import gpus
from rankscope.tui.doctor.machine import kernel, loopback, state_directory, temporary_directory
from rankscope.tui.doctor.stacks import stacks
from rankscope.tui.doctor.versions import flight_recorder, libraries, python

ALL: tuple[Callable[[], list[Check]], ...] = (
    python,
    libraries,
    flight_recorder,
    state_directory,
    temporary_directory,
    loopback,
    kernel,
    stacks,
    gpus,
)


def examine() -> list[Check]:
    """Run every check. One that itself fails is a finding, not the end of the others."""
    found: list[Check] = []
    for check in ALL:
        try:
            found += check()
        except Exception as error:  # noqa: BLE001 - whatever is broken here is what is looked for
            found.append(
                Check(
                    check.__name__.replace("_", " "),
                    works=False,
                    essential=False,
                    says=f"could not be checked: {type(error).__name__}: {error}",
                )
            )
    return found
