"""Display of pipelines, states, runs and items: one model for HTML, rich and plain text."""
