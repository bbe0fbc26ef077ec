"""What /metrics shows, and how."""
