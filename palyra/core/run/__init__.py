"""One run: state, fold of its tape, and the decision what happens next."""
