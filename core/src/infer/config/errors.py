"""Errors that are the user's to fix."""

from __future__ import annotations


class UserError(Exception):
    """Wrong usage or input. Its text is one line: the thing, the value, what to do.

    The command line prints it and exits with code 2; the server answers with a 4xx.
    """


class EngineError(Exception):
    """The engine has failed; every open request gets this text."""
