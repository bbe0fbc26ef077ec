"""A subscription: its cursor, its consumers, its acknowledgements."""
