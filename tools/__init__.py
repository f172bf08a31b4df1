"""What tox and CI run: the editable environment, wheels, the README's commands, references."""
