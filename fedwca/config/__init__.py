"""Merge files, presets and options into a checked configuration, and compose methods from it."""
