"""What a folder already holds: checkpoints, the round to go on from, what must be the same, runs used again."""
