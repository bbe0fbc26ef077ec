"""One consumer: what it may get, holds and has got."""
