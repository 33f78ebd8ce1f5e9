"""A federation apart from methods and files: a round, the server's part of it, checks of uploads, the source model."""
