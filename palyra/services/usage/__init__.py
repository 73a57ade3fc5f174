"""Cost of runs: budgets, sums, reports, factors of token counts."""
