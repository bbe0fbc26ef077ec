"""Jobs over the log: each is a function here and a command (`magnetar pipeline ...`).

The driver plans pieces of work; tasks perform them, write all large data and return reports only: payloads never cross
the JVM. `runner` runs the pieces on Spark or, for small work and for tests, in this process.
"""
