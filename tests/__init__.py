"""Tests that cross packages, and what all tests share."""
