"""The KV cache: which block of the pool belongs to whom. Pure bookkeeping, no tensors."""
