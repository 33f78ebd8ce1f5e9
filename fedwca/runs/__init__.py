"""The life of a run: request, preparation, rounds, resuming, reuse of finished runs, and opening its models again."""
