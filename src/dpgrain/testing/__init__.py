"""Contracts that implementations from elsewhere inherit in their tests."""
