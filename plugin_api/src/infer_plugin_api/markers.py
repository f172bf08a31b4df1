"""The two pluggy markers of the project: plugins need :data:`hookimpl` only."""

from __future__ import annotations

import pluggy

PROJECT = "infer"
ENTRY_POINT_GROUP = "infer.plugins"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
