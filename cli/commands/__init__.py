"""The commands by subject, each module with its click commands."""
