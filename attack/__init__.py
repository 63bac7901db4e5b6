"""Attacks on the product: kills, damaged files, hostile arguments."""
