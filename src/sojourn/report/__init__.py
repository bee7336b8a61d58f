"""What a model has learned, for people: summaries, plots, and a report in one HTML file."""
