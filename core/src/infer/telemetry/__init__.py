"""Metrics and logs. Nothing here imports torch."""
