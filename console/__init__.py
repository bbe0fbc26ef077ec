"""The console: pages for people under /ui, rendered by the broker.

The console has neither rights nor state: each figure and each action is a call of the REST API in the same process,
with the credentials of the visitor. The console cannot do an action that the REST API refuses.
"""
