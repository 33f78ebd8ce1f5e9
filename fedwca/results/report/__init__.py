"""Reports of runs: one self-contained HTML page, or their tables as Markdown or LaTeX."""
