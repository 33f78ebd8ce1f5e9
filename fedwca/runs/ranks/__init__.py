"""Several processes of one run: who does which trials, and how they start and end together."""
