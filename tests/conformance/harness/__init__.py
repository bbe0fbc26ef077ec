"""What scenarios are run with: frames, connections, sessions, the runner and a broker of our own."""
