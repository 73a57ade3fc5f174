"""Context of a model request: assembly, history, compaction."""
