"""Time limits of single examples say more about the machine than about the code: there are none."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
