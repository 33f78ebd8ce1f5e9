"""Training and evidence for many clients: the bank of models, and the engines that work on it."""
