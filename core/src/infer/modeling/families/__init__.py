"""Model families: each reads a Hugging Face config into a DecoderSpec, without torch."""
