"""Message converters at work: chosen at start, isolated from other consumers, with a policy for failures.

config           the settings and the policy for failures, as plain values
loading          from them to a chain; foreign classes are loaded in worker processes only
worker, frames, worker_process, worker_pool     processes that convert
candidates       which entries of a slab a converter would take; a slab without any costs a lookup
topic_converting the books of a topic: breakers, failures, figures; one conversion for all its subscriptions
transformer      the interface for a subscription's dispatcher
outcomes         of an attempt: converted entries in the form that dispatch works with, or the reason of a failure
dead_letters, converter_figures
service          owns these parts; the broker owns the service
"""
