"""Kinds of device."""
