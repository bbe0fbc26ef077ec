"""The engine on Apache BookKeeper: ledgers of slabs on bookies, through the client in ``magnetar.bookkeeper``."""
