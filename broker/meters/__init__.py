"""What is counted and measured, once per burst."""
