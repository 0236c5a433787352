"""``rankscope check``: one line and an exit code, for cron and epilogs."""

from argparse import Namespace

from rankscope.tui.arguments import OneLineParser, add_json, add_run

HELP = "exit 0 when the run is healthy, 1 when there is a problem"


def options(parser: OneLineParser) -> None:
    add_run(parser)
    add_json(parser)


def run(given: Namespace) -> int:
    from rankscope.protocol import jsontext
    from rankscope.tui import source
    from rankscope.tui.text.check import check_line, judge
    from rankscope.tui.text.output import write

    status = source.status_of(given)
    code = judge(status)
    if given.json:
        print(jsontext.dumps({"healthy": code == 0, "run": status.run, "verdict": status.verdict}))
    else:
        write(check_line(status))
    return code
