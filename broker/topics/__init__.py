"""Topics: found, loaded, published to, cleaned up."""
