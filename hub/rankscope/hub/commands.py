"""Operators' requests in words: for the incident log, and for views. Pure."""

from rankscope.hub import possible
from rankscope.hub.diagnose.text import age_text
from rankscope.hub.incidents import Incidents
from rankscope.hub.orders import SAVED_S, Answer, Over, Pending
from rankscope.hub.runstate import between_lives
from rankscope.hub.state import RunState
from rankscope.protocol.shapes import Command, Finding, Incident, Paused

MAX_SHOWN = 32
FORGOTTEN_S = SAVED_S + 900.0
"""A request in the log of which nothing is known any more for so long was lost with a hub."""


def asked(name: str, author: str, answer: Answer, state: RunState, now_s: float) -> list[Incident]:
    """The entries for a command that was given; of a refused one, all there is to say."""
    command = Command(
        request=answer.reference,
        command=name,
        author=author,
        age_s=0.0,
        state="waiting" if answer.accepted else "refused",
        text=answer.text,
    )
    number = answer.reference or int(now_s * 1e6)
    opened = _entry("opened", command, f"{author} asks for: {name}", state.attempt, number, now_s)
    if answer.accepted:
        return [opened]
    command = Command(
        request=0,
        command=name,
        author=author,
        age_s=0.0,
        state="refused",
        text=answer.text,
        ended_age_s=0.0,
    )
    text = f"{name} by {author} was refused: {answer.text}"
    return [opened, _entry("closed", command, text, state.attempt, number, now_s)]


def ended(over: Over, attempt: int, now_s: float) -> list[Incident]:
    """The entries for a request that is over: its end, and its beginning where it was not known."""
    command = Command(
        request=over.request,
        command=over.command,
        author=over.author,
        age_s=max(0.0, now_s - over.asked_s),
        state=over.state,
        text=over.text,
        step=over.step,
        ended_age_s=0.0,
    )
    word = {"done": "is done", "given-up": "was given up", "cancelled": "was cancelled"}
    text = f"{over.command} by {over.author} {word.get(over.state, over.state)}: {over.text}"
    head = f"{over.author} asks for: {over.command}"
    return [
        _entry("opened", command, head, attempt, over.request, over.asked_s),
        _entry("closed", command, text, attempt, over.request, now_s),
    ]


def lost(incidents: Incidents, known: list[Pending], now_s: float) -> list[Incident]:
    """The ends of requests that an earlier hub had accepted, and of which no rank knows."""
    found = []
    for entry in incidents.commands.values():
        command = entry.command
        if command is None or now_s - entry.at_s < FORGOTTEN_S:
            continue
        if any(one.request == command.request for one in known):
            continue
        over = Over(
            command.request,
            command.command,
            command.author,
            entry.at_s,
            "given-up",
            "it was lost with the hub that was asked",
            None,
        )
        closed = ended(over, entry.attempt, now_s)[1]
        closed.id = entry.id
        found.append(closed)
    return found


def _entry(
    event: str, command: Command, headline: str, attempt: int, number: int, at_s: float
) -> Incident:
    return Incident(
        id=f"command/{attempt}/{command.command}/{number}",
        event="opened" if event == "opened" else "closed",
        at_s=at_s,
        attempt=attempt,
        finding=Finding(
            kind="command",
            severity="info",
            ranks=[],
            victims=[],
            step=command.step,
            since_s=command.age_s,
            headline=headline,
            evidence=[],
            next="",
        ),
        command=command,
    )


# --- for views -----------------------------------------------------------------------------------


def in_work(state: RunState, pending: Pending | None, text: str, now_s: float) -> Command | None:
    """The request in work as the ranks have it."""
    if pending is None or not pending.request:
        return None
    row = state.controls.in_work()
    here = row is not None and row.request == pending.request
    word, step = "waiting", None
    if row is not None and here:
        word, step = row.phase, row.boundary or None
    elif pending.request in state.controls.ends:
        end = state.controls.ends[pending.request]
        word, step = "saving" if pending.command == "checkpoint" else "agreed", end.boundary or None
    return Command(
        request=pending.request,
        command=pending.command,
        author=pending.author,
        age_s=max(0.0, now_s - pending.asked_s),
        state=word,
        text=text,
        step=step,
    )


def past(incidents: Incidents, now_s: float) -> list[Command]:
    """Those that are over, the newest first; from the incident log.

    Ages are as of ``now_s``: of what was refused after a run's end they are below zero.
    """
    found: list[Command] = []
    for entry in reversed(incidents.shown):
        command = entry.command
        if command is None or entry.event != "closed":
            continue
        gone_s = now_s - entry.at_s
        found.append(
            Command(
                request=command.request,
                command=command.command,
                author=command.author,
                age_s=command.age_s + gone_s,
                state=command.state,
                text=command.text,
                step=command.step,
                ended_age_s=gone_s,
            )
        )
        if len(found) == MAX_SHOWN:
            break
    return found


def paused(state: RunState, now_s: float) -> Paused | None:
    """The pause that the ranks are in."""
    rows = state.controls.rows
    here = sorted(rank for rank in state.controls.held if rows[rank].phase == "paused")
    if not here:
        return None
    first = rows[here[0]]
    ends_s = [rows[rank].until_s for rank in here]
    known = [end_s for end_s in ends_s if end_s is not None]
    return Paused(
        request=first.request,
        author=first.author,
        step=first.boundary,
        since_s=max(0.0, now_s - min(rows[rank].since_s for rank in here)),
        expires_s=max(0.0, min(known) - now_s) if known else None,
        ranks=here,
    )


def note(state: RunState, pending: Pending | None, text: str, now_s: float) -> str:
    """One line on what operators have the run do; empty when that is nothing."""
    if possible.run_over(state, now_s):
        return ""
    if between_lives(state, now_s):
        return f"all ranks of attempt {state.attempt} have ended; their launcher is still there"
    pause = paused(state, now_s)
    if pause is not None:
        ends_s, since = pause.expires_s, age_text(pause.since_s)
        ends = "" if ends_s is None else f", {age_text(ends_s)} more at most"
        stands = f"paused after step {pause.step} by {pause.author} for {since}{ends}"
        if pending is None or pending.request in (0, pause.request):
            return f"{stands}: rankscope resume"
        return f"{stands}; {pending.command}, asked for by {pending.author}: {_state(text)}"
    if pending is not None and pending.request:
        return f"{pending.command}, asked for by {pending.author}: {_state(text)}"
    stops = [state.controls.rows[rank] for rank in state.controls.stopped]
    if not stops:
        return ""
    step = max(row.stop_step for row in stops)
    if any(row.overrun for row in stops):
        return f"stop agreed at step {step}; this loop does not look at agent.should_stop"
    return f"training was told to stop after step {step}"


def _state(text: str) -> str:
    return text.removeprefix("pending: ") or "asked for"
