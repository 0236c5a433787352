"""The protocol's version, as SPEC.md states it."""

MAJOR = 1
"""Raised when an old peer could misread a new one; peers of another major are refused in words."""

MINOR = 0
"""Raised when fields or message kinds are added; peers of another minor understand each other."""
