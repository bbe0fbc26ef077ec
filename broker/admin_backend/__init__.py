"""The broker's side of the admin API (`admin/api.py`)."""
