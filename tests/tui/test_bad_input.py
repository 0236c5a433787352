"""Everything a user can get wrong: one line that says what to do, the exit code, nothing left."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from rankscope.protocol import keys, rundir
from rankscope.protocol.version import MAJOR
from support.outside import DEADLINE_S, nothing_left, rankscope, refused
from support.runs import RANKSCOPE, environment
from support.wire import hub_process, new_run

pytestmark = pytest.mark.processes


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bogus"], "--bogus"),
        (["nope"], "nope"),
        (["status", "--bogus"], "status --help"),
        (["status", "a", "b"], "unrecognized arguments: b"),
        (["run"], "no command given"),
        (["run", "--port", "x", "--", "true"], "--port"),
        (["run", "--port", "0", "--", "true"], "--port"),
        (["run", "--", "no-such-command-anywhere"], "there is no command"),
        (["run", "--", "/etc/passwd"], "may not be executed"),
        (["run", "--run-id", "../x", "--", "true"], "is no run id"),
        (["run", "--run-id", "latest", "--", "true"], "choose another id"),
        (["run", "--tui", "--", "true"], "needs a terminal"),
        (["demo", "--ranks", "0"], "at least 1 rank"),
        (["demo", "--ranks", "many"], "--ranks"),
        (["demo", "--ranks", "100000"], "use at most"),
        (["demo", "--steps", "0"], "at least 1 step"),
        (["demo", "--trainer", "jax"], "ddp"),
        (["demo", "--text", "/no/such/text"], "no such file or folder"),
        (["pause", "--minutes", "0"], "is not 1 to 1440"),
        (["pause", "--timeout", "soon"], "--timeout"),
        (["verify-checkpoint", "/no/such"], "there is no /no/such"),
        (["verify-checkpoint", "/etc/passwd"], "is a file; name the directory"),
        (["run", "--", "/tmp"], "is a folder"),
        (["status", "/tmp"], "no run directory (there is no run.json in it)"),
        (["status", "."], "no run directory"),
        (["top", "/etc/passwd"], "no run directory"),
        (["status", "~no-such-user/x"], "~no-such-user is nobody's home folder here"),
        (["replay", "~no-such-user/recording"], "~no-such-user is nobody's home folder here"),
        (["status", "--endpoint", "tcp://127.0.0.1:9"], "--key"),
        (["status", "--endpoint", "nonsense", "--key", "/no/key"], "no key file"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    home: Path, arguments: list[str], words: str
) -> None:
    """Exit 2, before anything is started or written."""
    with nothing_left(home):
        refused(rankscope(home, *arguments), 2, words)
    assert not list(home.glob("runs/*"))


@pytest.mark.parametrize("command", ["status", "ranks", "check", "incidents", "top"])
def test_no_run_at_all(home: Path, command: str) -> None:
    """There is nothing to reach: exit 3, and how to start one."""
    refused(rankscope(home, command), 3, "no run found", "rankscope run")
    assert json.loads(rankscope(home, "ls", "--json").out) == {"runs": []}


def test_a_run_that_does_not_exist(home: Path) -> None:
    """A wrong name is a wrong argument."""
    refused(rankscope(home, "status", "no-such-run"), 2, "no run no-such-run", "rankscope ls")
    refused(rankscope(home, "status", "/no/such/place"), 2, "no run")


def test_a_run_whose_hub_never_ran_is_no_riddle(home: Path) -> None:
    """A directory without a hub and without a recording: exit 3; after a minute it is stale."""
    directory = new_run(home)
    with nothing_left(home):
        refused(rankscope(home, "status"), 3, "no live hub and no recording")
    assert json.loads(rankscope(home, "ls", "--json").out)["runs"][0]["state"] == "starting"
    old = msgspec.structs.replace(directory.read_info(), created_s=1.0)
    directory.write_info(old)
    assert json.loads(rankscope(home, "ls", "--json").out)["runs"][0]["state"] == "stale"


def test_a_stale_run_directory_is_answered_from_its_recording(home: Path) -> None:
    """The hub was killed and its pid may be another's now: its recording still answers."""
    with hub_process(home) as hub:
        hub.kill()
        info = hub.directory.read_info()
        assert info.hub is not None
        reused = msgspec.structs.replace(info, hub=rundir.HubProcess(os.getpid(), 1.0))
        hub.directory.write_info(reused)
        os.utime(hub.directory.recording, (1, 1))
        for segment in hub.directory.recording.iterdir():
            os.utime(segment, (1, 1))
        with nothing_left(home):
            answer = rankscope(home, "status", "--json")
        assert answer.code == 0, answer
        assert json.loads(answer.out)["run"] == "run-1"


def test_a_run_directory_open_to_others_is_refused(home: Path) -> None:
    """The line names the command that closes it."""
    directory = new_run(home)
    directory.path.chmod(0o755)
    refused(rankscope(home, "status", "run-1"), 2, "open to other users", "chmod go-rwx")
    directory.path.chmod(0o700)
    directory.info_path.chmod(0o644)
    refused(rankscope(home, "status", "run-1"), 2, "open to other users", "chmod go-rwx")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b"[1]", b"ssh-rsa AAAA", b"x" * 9000])
def test_what_is_no_key_file_is_not_told_to_be_closed(
    home: Path, tmp_path: Path, content: bytes
) -> None:
    """Advice on the mode of a file comes after seeing that it is a key at all."""
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o644)
    ran = rankscope(home, "status", "--endpoint", "tcp://127.0.0.1:9", "--key", str(path))
    refused(ran, 2, "rankscope")
    assert "chmod" not in ran.err
    assert "grant" not in ran.err


def test_a_folder_with_a_strange_run_json_is_not_told_to_be_removed(
    home: Path, tmp_path: Path
) -> None:
    """It may be anybody's: rankscope advises on what it made itself only."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    path = folder / "run.json"
    path.write_text('{"mine": 1}')
    path.chmod(0o600)
    for mode in (0o755, 0o700):
        folder.chmod(mode)
        ran = rankscope(home, "status", str(folder))
        refused(ran, 2, str(folder))
        assert "chmod" not in ran.err
        assert "remove" not in ran.err


def test_a_run_is_found_by_its_name_and_by_the_start_of_its_id(home: Path) -> None:
    """What is unique is enough; what is not is told with what it could be."""
    with hub_process(home, run="run-10"), hub_process(home, run="run-20"):
        assert json.loads(rankscope(home, "status", "run-2", "--json").out)["run"] == "run-20"
        refused(rankscope(home, "status", "run-"), 2, "run-10", "run-20")
        refused(rankscope(home, "status", "ru1"), 2, "no run ru1")
        directory = rundir.RunDirectory(home / "runs" / "run-10")
        directory.write_info(msgspec.structs.replace(directory.read_info(), name="tuesday"))
        assert json.loads(rankscope(home, "status", "tuesday", "--json").out)["run"] == "run-10"


@pytest.mark.parametrize("command", [["ls"], ["ls", "--json"], ["--help"], ["doctor"]])
def test_a_full_disk_is_no_bug(home: Path, command: list[str]) -> None:
    """One line on what could not be written, no crash file."""
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [*RANKSCOPE, *command],
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert result.returncode == 2, result
    assert result.stderr == "rankscope: cannot write the output: No space left on device\n"


def test_a_key_open_to_others_is_refused(home: Path) -> None:
    """A key that others could read is no key."""
    with hub_process(home) as hub:
        key = hub.directory.key_path("operator")
        key.chmod(0o644)
        refused(rankscope(home, "status"), 2, "open to other users")
        refused(
            rankscope(home, "status", "--endpoint", hub.endpoint, "--key", str(key)), 2, "chmod"
        )


def test_a_damaged_run_file_or_key_is_told(home: Path) -> None:
    """Not a riddle about JSON."""
    directory = new_run(home)
    key = directory.key_path("viewer")
    key.write_text("{}")
    refused(
        rankscope(home, "status", "--endpoint", "tcp://127.0.0.1:9", "--key", str(key)),
        2,
        "is not a rankscope key file",
    )
    directory.info_path.write_text("{")
    refused(rankscope(home, "status", "run-1"), 2, "is damaged")


def test_a_key_the_hub_does_not_admit(home: Path, tmp_path: Path) -> None:
    """A good key of nobody's: exit 3, and at once."""
    with hub_process(home) as hub:
        pair = keys.new_pair()
        path = tmp_path / "stranger.json"
        hub_public = hub.directory.read_key("viewer").hub_public
        keys.write_client_key(
            path, keys.ClientKey("viewer", "run-1", pair.public, pair.secret, hub_public)
        )
        refused(
            rankscope(home, "status", "--endpoint", hub.endpoint, "--key", str(path)),
            3,
            "does not admit this key",
        )


def test_a_key_of_another_run(home: Path) -> None:
    """The hub is not the one the key file belongs to."""
    with hub_process(home) as hub:
        other = new_run(home, "run-2").key_path("viewer")
        refused(
            rankscope(home, "status", "--endpoint", hub.endpoint, "--key", str(other)),
            3,
            "is not the hub this key file belongs to",
        )


def test_a_port_nobody_listens_at(home: Path) -> None:
    """Exit 3."""
    key = new_run(home).key_path("viewer")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    refused(
        rankscope(home, "status", "--endpoint", f"tcp://127.0.0.1:{port}", "--key", str(key)),
        3,
        "nobody listens",
    )


def test_a_port_that_never_speaks(home: Path) -> None:
    """A program that accepts and is silent, as a stopped hub is: exit 4."""
    key = new_run(home).key_path("viewer")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused(
            rankscope(home, "status", "--endpoint", f"tcp://127.0.0.1:{port}", "--key", str(key)),
            4,
            "says nothing",
        )


def test_a_port_in_use_stops_the_run_before_its_command(home: Path, tmp_path: Path) -> None:
    """Exit 2 with the reason; the command was not started, the directory is taken back."""
    witness = tmp_path / "witness"
    with socket.create_server(("127.0.0.1", 0)) as server, nothing_left(home):
        port = str(server.getsockname()[1])
        refused(
            rankscope(home, "run", "--port", port, "--", "touch", str(witness)), 2, "port", port
        )
    assert not witness.exists()
    assert not list(home.glob("runs/*"))


@pytest.mark.parametrize("arguments", [["run", "--", "true"], ["ls"], ["status"]])
def test_a_home_of_nobody(arguments: list[str]) -> None:
    """Said of the variable that names it, with exit code 2."""
    refused(rankscope(Path("~no-such-user/x"), *arguments), 2, "RANKSCOPE_HOME=~no-such-user/x")


def test_a_run_id_that_is_taken(home: Path) -> None:
    """The other run is left alone."""
    new_run(home)
    refused(rankscope(home, "run", "--run-id", "run-1", "--", "true"), 2, "exists already")


def test_a_run_of_another_major_version(home: Path) -> None:
    """Named, with what to use instead."""
    directory = new_run(home)
    info = directory.read_info()
    directory.write_info(msgspec.structs.replace(info, protocol_major=MAJOR + 1))
    refused(rankscope(home, "status", "run-1"), 2, f"protocol {MAJOR + 1}")
    ls = json.loads(rankscope(home, "ls", "--json").out)
    assert ls["runs"][0]["state"] == "unreadable"


def test_several_live_runs_are_listed(home: Path) -> None:
    """Without a terminal to ask on: exit 2 with their names."""
    with hub_process(home, run="run-1"), hub_process(home, run="run-2"):
        refused(rankscope(home, "status"), 2, "run-1", "run-2")
        assert json.loads(rankscope(home, "status", "run-2", "--json").out)["run"] == "run-2"


@pytest.mark.parametrize("content", [None, b"", b"\x00\xff\x00" * 500, b"too short"])
def test_a_text_that_cannot_be_trained_on(
    home: Path, tmp_path: Path, content: bytes | None
) -> None:
    """Missing, empty, binary, shorter than a batch: one line, exit 2, no run left behind."""
    text = tmp_path / "text"
    if content is not None:
        text.write_bytes(content)
    with nothing_left(home):
        ran = rankscope(home, "demo", "--ranks", "1", "--text", str(text))
        refused(ran, 2, "text")
        for option in re.findall(r"--[a-z-]+", ran.err):
            assert option in ("--text", "--ranks"), ran.err
    assert not list(home.glob("runs/*"))


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where the folder should be."""
    home = tmp_path / "file"
    home.write_text("")
    refused(rankscope(home, "run", "--", "true"), 2, "RANKSCOPE_HOME")


def test_a_bug_leaves_a_file_and_one_line(home: Path) -> None:
    """No traceback on the screen: a crash file of mode 0600, without locals, exit 70."""
    broken = home / "broken"
    broken.mkdir(parents=True)
    (broken / "msgspec.py").write_text("def f(secret):\n    raise RuntimeError('boom')\nf('x')")
    ran = rankscope(home, "ls", env={"PYTHONPATH": str(broken), "TMPDIR": str(home)})
    refused(ran, 70, "a bug in rankscope (RuntimeError)")
    path = Path(ran.err.split()[-1])
    assert path.parent == home
    assert path.stat().st_mode & 0o777 == 0o600
    assert "boom" in path.read_text()
    assert "secret = " not in path.read_text()
