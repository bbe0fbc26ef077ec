"""Message converters at work: chosen at start, isolated from other consumers, with a policy for failures.

config           the settings and the policy for failures, as plain values
loading          makes a chain of the settings; only worker processes load foreign classes
worker, frames, worker_process, worker_pool     the processes that convert entries
candidates       the entries of a slab that a converter takes; a slab without such entries costs a lookup
topic_converting a topic's breakers, failures and figures; all its subscriptions share a conversion
transformer      the interface for a subscription's dispatcher
outcomes         the outcomes of an attempt: converted entries in the form that dispatch uses, or a failure
dead_letters, converter_figures
service          owns these parts; the broker owns the service
"""
