"""Results of a run: records of its rounds, a summary, pictures and tables."""
