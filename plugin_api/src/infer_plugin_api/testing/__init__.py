"""Conformance kits: what every provider of a slot must do, as pytest classes.

A plugin's test file is two lines per provider::

    class TestMyAttention(AttentionConformance):
        descriptor = MY_ATTENTION_DESCRIPTOR

Cases outside what the descriptor declares (dtypes, head sizes, windows, ...) are skipped. The kits
need pytest and torch; importing :mod:`infer_plugin_api` needs neither.

- :mod:`infer_plugin_api.testing.attention`: ``AttentionConformance``
- :mod:`infer_plugin_api.testing.ops`: one class per fused op, and ``op_suites`` for all at once
- :mod:`infer_plugin_api.testing.linear`: ``LinearConformance``
"""
