"""Results held against what is known: published figures, optimal plans, true futures."""
