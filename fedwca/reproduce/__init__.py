"""Reproduction of published tables and figures: methods are run, and results shown beside the printed numbers."""
