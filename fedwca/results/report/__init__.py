"""Reports of runs: one self-contained HTML page, or the summary table as Markdown or LaTeX."""
