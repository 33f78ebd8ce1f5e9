"""Search for hyper-parameters without target labels."""
