"""Display of pipelines, states, runs and items: one model, rendered as HTML, by rich, and as text.
"""
