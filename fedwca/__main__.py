"""``python -m fedwca``."""

from fedwca.cli import main

main()
