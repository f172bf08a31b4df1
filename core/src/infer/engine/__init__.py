"""Request life cycle: text to ids, EngineCore, ids to text; the process boundary."""
