"""SmolLM2-135M-Instruct, the default model of infer."""
