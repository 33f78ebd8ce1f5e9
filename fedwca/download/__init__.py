"""Download catalogued data sets: fetch, check and unpack their files into the layout that their readers expect.

The addresses of a data set's files are in its own module of `fedwca.datasets`.
"""
