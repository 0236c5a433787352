"""The environment variables of rankscope, named once."""

SWITCH = "RANKSCOPE"
"""``off`` makes ``attach`` a no-op."""

HOME = "RANKSCOPE_HOME"
"""Where run directories are kept instead of the user's state directory."""

RUN = "RANKSCOPE_RUN"
"""Set by ``rankscope run``: the run's id."""

ENDPOINT = "RANKSCOPE_ENDPOINT"
"""Set by ``rankscope run``: where the hub listens."""

AGENT_KEY = "RANKSCOPE_AGENT_KEY"
"""Set by ``rankscope run``: the path of the agents' key file."""

NAME = "RANKSCOPE_NAME"
"""What to call the run on screen."""
