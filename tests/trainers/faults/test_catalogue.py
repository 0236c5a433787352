"""The trainers' catalogue of faults and the table of verdicts are about the same faults."""

from pathlib import Path

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


def test_the_page_about_the_drill_has_every_fault() -> None:
    """With the kinds it must be called."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "drill.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert list(rows) == [fault.name for fault in FAULTS]
    for fault in FAULTS:
        assert fault.does in rows[fault.name]
        assert all(f"`{kind}`" in rows[fault.name] for kind in (*fault.kinds, *fault.where))
