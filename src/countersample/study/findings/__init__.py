"""What came out: statistics, verdicts, tables and figures."""
