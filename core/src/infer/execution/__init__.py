"""Executors, the worker and its model runner."""
