"""Running a study: jobs, the results folder, threads, progress, rows of results."""
