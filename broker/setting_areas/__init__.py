"""The rows of the settings table, area by area; `broker/settings.py` puts them together."""
