"""Models that leave fedwca: files others can run, what is said with them, and predictions from them."""
