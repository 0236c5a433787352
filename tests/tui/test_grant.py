"""A key for a colleague or a laptop, and using it without the run's directory."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.protocol.keys import read_client_key
from rankscope.tui.text.grant import grant_lines
from support.ranks import SyntheticRun
from support.runs import RANKSCOPE, environment
from support.terminal import Terminal
from support.wire import Hub, hub_process


def said(role: str, endpoint: str) -> str:
    return "\n".join(grant_lines(role, "run-1", endpoint, Path("/tmp/a key.json")))


def test_what_to_type_is_said_with_what_the_key_may_do() -> None:
    """A hub on loopback needs a forwarded port; the command stands on a line of its own."""
    text = said("viewer", "tcp://127.0.0.1:40995")
    assert "look at everything, and command nothing" in text
    assert "ssh -N -L 40995:127.0.0.1:40995 " in text
    lines = text.splitlines()
    assert lines[-1] == "  rankscope top --endpoint tcp://127.0.0.1:40995 --key '/tmp/a key.json'"


def test_a_hub_on_a_network_needs_no_forwarding() -> None:
    """It is reached as it is."""
    text = said("operator", "tcp://10.0.0.7:40995")
    assert "ssh" not in text
    assert "stop the run" in text


def test_that_a_key_cannot_be_taken_back_is_said() -> None:
    """Whoever gives it away must know."""
    assert "cannot be\ntaken back" in said("viewer", "tcp://127.0.0.1:1")


def rankscope(home: Path, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*RANKSCOPE, *words],
        env=environment(home),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_process(tmp_path / "home") as started:
        yield started


@pytest.mark.processes
def test_a_granted_key_is_enough_from_anywhere(hub: Hub, tmp_path: Path) -> None:
    """Another folder, another home: status and dashboard by endpoint and key; a viewer's commands
    are refused by the hub."""
    home, elsewhere = tmp_path / "home", tmp_path / "laptop"
    elsewhere.mkdir()
    granted = rankscope(home, elsewhere, "grant", "viewer", hub.directory.run)
    assert granted.returncode == 0, granted.stderr
    key = elsewhere / "run-1-viewer.json"
    assert key.stat().st_mode & 0o777 == 0o600
    assert read_client_key(key).role == "viewer"
    use = ["--endpoint", hub.endpoint, "--key", str(key)]
    assert f"rankscope top {use[0]} {use[1]} --key {key.name}" in granted.stdout

    other_home = tmp_path / "other-home"
    with SyntheticRun(hub):
        status = rankscope(other_home, elsewhere, "status", "--json", *use)
        assert json.loads(status.stdout)["run"] == "run-1"
        refused = rankscope(other_home, elsewhere, "checkpoint", *use)
        assert refused.returncode != 0
        assert "viewer key may not" in refused.stderr
        env = {**os.environ, "RANKSCOPE_HOME": str(other_home)}
        with Terminal([*RANKSCOPE, "top", *use], env=env) as terminal:
            terminal.wait_for("✓ healthy", "node-a", within_s=60.0)
            terminal.press("[")
            terminal.wait_for("run's directory", within_s=60.0)
            terminal.press("q")
            assert terminal.exit_code(within_s=60.0) == 0
    again = rankscope(home, elsewhere, "grant", "viewer", hub.directory.run)
    assert again.returncode == 2
    assert "exists already" in again.stderr


@pytest.mark.processes
def test_a_run_that_is_over_lets_nobody_in(hub: Hub, tmp_path: Path) -> None:
    """The key would be worth nothing: the recording is what is left."""
    hub.terminate()
    refused = rankscope(tmp_path / "home", tmp_path, "grant", "operator", hub.directory.run)
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1
    assert "rankscope replay run-1" in refused.stderr
