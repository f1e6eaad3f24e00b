"""Experiments: methods compared on labelled data with simulated clicks."""
