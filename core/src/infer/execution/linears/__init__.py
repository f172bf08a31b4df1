"""Built-in linear kernels."""
