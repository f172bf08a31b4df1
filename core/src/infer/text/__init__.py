"""Tokenizers, chat templates and incremental text. Nothing here imports torch."""
