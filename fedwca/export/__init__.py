"""Trained models as files that others can run, and predictions from them."""
