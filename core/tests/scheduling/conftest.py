"""Hypothesis profiles, and the simulation for the tests in this folder."""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Test modules are imported by path (importmode=importlib), so helpers beside them need this.
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "acceptance", max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck)
)

from scheduler_simulation import Simulation, World  # noqa: E402


@pytest.fixture
def simulate():
    """Return a function that makes a :class:`Simulation` from the fields of a :class:`World`."""
    return lambda **fields: Simulation(World(**fields))
