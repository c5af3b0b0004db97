"""Migrations of the inbox's database, by Alembic."""
