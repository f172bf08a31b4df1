"""Errors that cross the plugin border. Their text is shown to users as one line."""

from __future__ import annotations


class PluginApiError(Exception):
    """Base of the errors that plugins raise for the host to report."""


class ModelError(PluginApiError):
    """A model can't be found, read or served. Says what, the value found and what to do."""


class UnsupportedError(PluginApiError):
    """A provider can't do what was asked. Says what was asked and what it can do."""
