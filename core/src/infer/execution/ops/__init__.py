"""Built-in fused ops."""
