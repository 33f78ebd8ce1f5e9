"""Ways to run the same step faster that are chosen by measurement."""
