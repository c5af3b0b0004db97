"""Evaluation against references: published figures, optimal plans, true run times."""
