"""Measured ratios of the provider's token counts to the daemon's estimate, by model.

Owns: the ratios, in memory; a restart loses them and the next turns measure again.
Written by: run actors, when a run ends.  A run takes them over once, at its beginning, and they are on
its tape (`run.started`), so what a run assembles never depends on concurrent runs.
"""

from palyra.core.run.state import Run

MAX_MODELS = 64


class TokenFactors:
    """Running ratios of all models."""

    def __init__(self) -> None:
        self.bps: dict[str, int] = {}  # replaced as a whole: tapes of runs share it

    def learn(self, run: Run) -> None:
        """Take over the ratio that a run has measured for the model it used last."""
        measured = run.token_bps.get(run.asked.model)
        if measured is None or measured == self.bps.get(run.asked.model):
            return
        if run.asked.model in self.bps or len(self.bps) < MAX_MODELS:
            self.bps = {**self.bps, run.asked.model: measured}
