"""The managed layer: logs made of ledgers. Uses only the interfaces of the room, so every engine can stand below."""
