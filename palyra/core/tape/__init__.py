"""The events of a run, and the export of a tape with its proof."""
