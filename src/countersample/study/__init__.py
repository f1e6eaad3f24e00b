"""Experiments: methods compared on labelled (judged) data with simulated clicks."""
