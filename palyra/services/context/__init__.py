"""Input of a model: references, history, compaction, images."""
