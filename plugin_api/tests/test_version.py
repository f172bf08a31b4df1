"""Which plugins a host accepts, by the versions both name."""

from __future__ import annotations

import pytest

from infer_plugin_api import API_VERSION, __version__
from infer_plugin_api.version import incompatibility, parse_api_version


def test_the_package_version_begins_with_the_api_version() -> None:
    assert __version__.startswith(f"{API_VERSION}.")


def test_a_version_is_read_as_two_numbers() -> None:
    assert parse_api_version("1.12") == (1, 12)


@pytest.mark.parametrize("text", ["1", "1.", ".1", "1.0.0", "one.two", "", "-1.0", "1.0a"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the form 'major\.minor'"):
        parse_api_version(text)


@pytest.mark.parametrize("declared", ["1.0", "1.3", "1.4"])
def test_a_plugin_for_the_same_major_and_no_later_minor_is_accepted(declared: str) -> None:
    assert incompatibility(declared, "1.4") is None


@pytest.mark.parametrize(
    ("declared", "fix"),
    [
        ("2.0", "upgrade infer-plugin-api"),
        ("0.9", "upgrade the plugin"),
        ("1.5", "upgrade infer-core and infer-plugin-api"),
        ("latest", "is not of the form 'major.minor'"),
    ],
)
def test_other_versions_are_refused_with_the_fix(declared: str, fix: str) -> None:
    reason = incompatibility(declared, "1.4")
    assert reason is not None
    assert declared in reason
    assert fix in reason
