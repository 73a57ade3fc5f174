"""What a model is shown: assembly, history, compaction."""
