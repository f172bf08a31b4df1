"""From logits to token ids: penalties, masks, truncation, the draw, log-probabilities."""
