"""What an Instance is: its names and labels, the pods rendered for it, what is observed of them. No budgets."""
