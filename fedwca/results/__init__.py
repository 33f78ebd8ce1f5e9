"""What a run leaves behind: records appended as they come, a summary, pictures and tables."""
