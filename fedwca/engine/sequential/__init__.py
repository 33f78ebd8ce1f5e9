"""The engine that runs clients one after another, several at a time in threads."""
