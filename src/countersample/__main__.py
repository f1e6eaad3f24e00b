"""``python -m countersample``."""

from countersample.cli import main

main()
