"""`python -m pih`: the command line."""

from pih.cli import main

main()
