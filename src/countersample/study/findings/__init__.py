"""Findings of a study: statistics, verdicts, tables and figures."""
