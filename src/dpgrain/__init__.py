"""Differential privacy at the granularity you choose."""
