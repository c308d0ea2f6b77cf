"""How pipelines, states, runs and items look: one model, drawn as HTML, with rich, as text."""
