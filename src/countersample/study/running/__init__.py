"""Doing a study: the work list, the results folder, threads, progress."""
