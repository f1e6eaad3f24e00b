"""Experiments: methods compared on judged data with simulated clicks."""
