"""The fused ops, against the conformance kit."""

from __future__ import annotations

import infer_numba
from infer_plugin_api.testing.ops import op_suites

globals().update(op_suites(infer_numba.infer_ops()))
