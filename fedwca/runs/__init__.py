"""The life of a run: what is asked for, prepared, carried out round by round, resumed, reused and opened again."""
