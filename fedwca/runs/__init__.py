"""The life of a run: its request, preparation, rounds and end, and opening its models again."""
