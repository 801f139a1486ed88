"""Rules of the core: budgets, strategies, decisions."""
