"""Offer everything above as commands."""
