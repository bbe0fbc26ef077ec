"""End-to-end benchmarks over raw sockets, beside a minimal server in C: ``python -m bench --help``."""
