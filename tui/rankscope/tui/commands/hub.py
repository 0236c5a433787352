"""``rankscope hub``: a run whose hub is gone is watched again."""

from argparse import Namespace

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser

HELP = "start a run's hub again, on its machine, when it and what restarts it are gone"


def options(parser: OneLineParser) -> None:
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or path; the newest if none")


def run(given: Namespace) -> int:
    from rankscope.protocol import launch
    from rankscope.protocol.exits import UserError
    from rankscope.protocol.pasting import words_for
    from rankscope.protocol.rundir import elsewhere, find_run, hub_is_alive, runs_home

    directory = find_run(runs_home(), given.wanted)
    directory.check()
    info, words = directory.read_info(), words_for(directory.path)
    watch = f"rankscope top {words}"
    there = f"run {info.run} has a hub: watch it with {watch}"
    if hub_is_alive(info):
        over = f"run {info.run} is over: look at it with {watch}"
        print(there if info.ended_s is None else over)
        return Exit.FINE
    if info.ended_s is not None:
        raise UserError(f"run {info.run} is over; what was recorded: {watch}")
    if host := elsewhere(info):
        raise UserError(
            f"run {info.run} belongs to {host}, where its ranks look for a hub: "
            f"run this there: rankscope hub {words}"
        )
    try:
        info = launch.wait_for_hub(directory, launch.spawn_hub(directory))
    except UserError:
        if not hub_is_alive(directory.read_info()):
            raise
        print(there)  # somebody else has started it meanwhile
        return Exit.FINE
    print(
        f"run {info.run} has a hub again, at {info.endpoint}: ranks that still train are heard "
        f"within seconds ({watch}). Killed, it is not restarted; it ends by "
        "itself once the ranks have, or 10 min after nobody was heard"
    )
    return Exit.FINE
