"""Usage of models: ledger, prices, budgets."""
