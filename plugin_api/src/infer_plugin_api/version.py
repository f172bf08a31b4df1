"""Version of the plugin API: what a plugin declares and what the host supports."""

from __future__ import annotations

__version__ = "1.0.0"

API_VERSION = "1.0"
"""``major.minor`` of the hooks and interfaces in this package."""


def parse_api_version(text: str) -> tuple[int, int]:
    """Return ``(major, minor)`` of *text*.

    Raises ValueError when *text* is not two dot-separated integers.
    """
    major, dot, minor = str(text).partition(".")
    if not dot or not major.isdecimal() or not minor.isdecimal():
        raise ValueError(f"API version {text!r} is not of the form 'major.minor', e.g. '1.0'")
    return int(major), int(minor)


def incompatibility(declared: str, supported: str = API_VERSION) -> str | None:
    """Say why a plugin built for *declared* can't run on *supported*, or None when it can.

    The major numbers must be equal; the host's minor number must not be below the plugin's.
    """
    try:
        want, have = parse_api_version(declared), parse_api_version(supported)
    except ValueError as error:
        return str(error)
    if want[0] != have[0]:
        newer = "infer-plugin-api" if want[0] > have[0] else "the plugin"
        return (
            f"built for plugin API {declared}, this infer has {supported} "
            f"(another major version); upgrade {newer}"
        )
    if want[1] > have[1]:
        return (
            f"built for plugin API {declared}, this infer has {supported}; "
            "upgrade infer-core and infer-plugin-api"
        )
    return None
