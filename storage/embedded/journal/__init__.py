"""The journal: frames of appends, written and synced before any receipt; its segments, its scan, its salvage."""
