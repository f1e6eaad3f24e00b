"""Kinds of study: each plans its work, does it and writes it up."""
