"""``rankscope check``: one line and an exit code, for cron and epilogs."""

from rankscope.tui.commands.options import Endpoint, Json, Key, Run


def command(run: Run = None, json: Json = False, endpoint: Endpoint = None, key: Key = None) -> int:
    """Exit 0 when the run is healthy, 1 when there is a problem."""
    from rankscope.protocol import jsontext
    from rankscope.tui import source
    from rankscope.tui.text.check import check_line, judge
    from rankscope.tui.text.output import write

    status = source.status_of(run, endpoint, key)
    code = judge(status)
    if json:
        print(jsontext.dumps({"healthy": code == 0, "run": status.run, "verdict": status.verdict}))
    else:
        write(check_line(status))
    return code
