"""Numbers become tables, pictures and a page."""
