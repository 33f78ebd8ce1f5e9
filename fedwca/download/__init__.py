"""Catalogued data sets, brought here: fetched, checked, unpacked into the layout that their readers know.

Where a data set's files lie is said in its own file in `fedwca.datasets`.
"""
