"""The tables and figures of published papers, run anew and shown beside what was printed."""
