"""Cursors: what a subscription has acknowledged, kept in ledgers of their own."""
