"""The tools of scenarios: frames, connections, sessions, the runner and a broker under test."""
