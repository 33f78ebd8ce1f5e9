"""What is recorded of a round: accuracies, diagnostics, traffic, newcomers, warnings."""
