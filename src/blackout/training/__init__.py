"""From data to weights: configuration, run folder, loop."""
