"""``rankscope analyze``: the verdict from flight-recorder dump files, of any torch job."""

from argparse import Namespace
from pathlib import Path

from rankscope.protocol.exits import Exit
from rankscope.tui.arguments import OneLineParser, add_json, number

HELP = "say who hung a job, from the dump files of torch's flight recorder"


def options(parser: OneLineParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder with one dump a rank")
    parser.add_argument(
        "--world-size",
        type=number(1),
        metavar="N",
        help="how many ranks there were, where the dumps do not tell",
    )
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.tui.dumps import analysis_of
    from rankscope.tui.text.analysis import analysis_text
    from rankscope.tui.text.output import width, write

    analysis = analysis_of(given.folder, given.world_size)
    if given.json:
        print(jsontext.dumps(analysis))
    else:
        write(analysis_text(analysis, width()))
    return Exit.PROBLEM if analysis.findings else Exit.FINE
