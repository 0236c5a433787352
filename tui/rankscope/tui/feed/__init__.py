"""Talking to a hub: the only part of the dashboard and the command line that knows ZeroMQ."""
