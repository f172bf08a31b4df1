"""From checkpoint files to a model that runs."""
