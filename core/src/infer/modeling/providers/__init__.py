"""Built-in model sources, weight formats and the unquantized quantizer."""
