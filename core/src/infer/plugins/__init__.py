"""Discovery, registry and selection of plugins. Nothing here imports torch."""
