"""Instances of dataclasses for tests that look at a few of their fields."""

import dataclasses


def defaults(cls, **values):
    """An instance of a dataclass: given values, and 0 for every other field without a default."""
    missing = dataclasses.MISSING
    zeros = {
        field.name: 0
        for field in dataclasses.fields(cls)
        if field.default is missing and field.default_factory is missing and field.name not in values
    }
    return cls(**zeros, **values)
