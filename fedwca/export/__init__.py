"""Writes trained models to files that others can run, and predicts with such files."""
