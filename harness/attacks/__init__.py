"""Attacks on a warehouse and a service: kills, edits, malformed files; are they detected?"""
