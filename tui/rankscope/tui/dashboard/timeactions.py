"""What moves through time, for the registry."""

from rankscope.tui.dashboard.action import Action

TIME_ACTIONS: tuple[Action, ...] = ()
