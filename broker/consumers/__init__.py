"""One consumer: its permits, held messages and figures."""
