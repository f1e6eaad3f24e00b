"""Days of a log that were boiled down to counts: written, read as a log, forgotten."""
