"""The trainers' catalogue of faults and the table of verdicts are about the same faults."""

from rankscope.protocol.faulttable import FAULTS
from rankscope.trainers.faults.catalogue import INSTALL

KEYS = {"parameter", "module", "microbatch", "phase", "collective", "source"}


def test_every_fault_of_the_table_can_be_injected_or_says_what_it_needs() -> None:
    """In the same order, none twice."""
    assert list(INSTALL) == [fault.name for fault in FAULTS if not fault.missing]


def test_the_table_has_every_fault_once() -> None:
    """And names kinds, and keys of a finding's where that there are."""
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
    for fault in FAULTS:
        assert fault.kinds, fault.name
        assert set(fault.where) <= KEYS, fault.name
        assert fault.does, fault.name
