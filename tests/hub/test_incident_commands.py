"""The incident log on disk: who reads it in an editor can paste what it suggests."""

import json
from pathlib import Path

import msgspec

from rankscope.hub.incidents import IncidentFile, read
from rankscope.protocol.pasting import words_for
from rankscope.protocol.shapes import Incident
from support.samples import FINDING


def test_a_logged_command_names_the_run(tmp_path: Path) -> None:
    """By its directory, which is not where runs are kept by who has set nothing."""
    finding = msgspec.structs.replace(FINDING, next="see where it is: rankscope stacks --rank 1")
    entry = Incident(id="x", event="opened", at_s=0.0, attempt=0, finding=finding)
    directory = tmp_path / "runs" / "20261129-163000-a3f9ab"
    directory.mkdir(parents=True)
    file = IncidentFile(directory / "incidents.jsonl")
    file.append([entry])
    named = f"see where it is: rankscope stacks {words_for(directory)} --rank 1"
    assert json.loads(file.path.read_text())["finding"]["next"] == named
    assert str(directory) in named
    assert entry.finding.next == finding.next  # what is held and shown is named by who shows it

    file.append(read(file.path))  # a hub that comes back has read its log
    assert [one.finding.next for one in read(file.path)] == [named, named]
