"""The comparison behind ``countersample demo``."""
