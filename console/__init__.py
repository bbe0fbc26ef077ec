"""The console: pages for people under /ui, rendered by the broker.

The console has no rights and no knowledge of its own: each figure and each action is a call of the REST API in the same
process, with the credentials of the visitor. Whatever the REST API refuses, the console cannot do.
"""
