"""Policies over REST as tables: one row per policy, three handlers (get, set, remove) made from it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.policy_rules import Rule
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.jackson_body import is_no_choice, is_null_text
from magnetar.broker.compat.java_numbers import fits
from magnetar.broker.errors import RestError
from magnetar.broker.policies.effective import TopicConfig
from magnetar.broker.policies.records import shown
from magnetar.broker.policies.values import PersistencePolicies

EMPTY_BODY: Final = "The request entity cannot be empty."


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """One policy.

    path      last part of the route
    field     its field in Policies or TopicPolicies
    kind      the type of its JSON
    verb      the method that sets it
    rule      a check of the value, beyond its type
    null_clears   a body of null unsets it; if not, it is refused
    null_ignored  a body of null changes nothing
    wide          an integer of 64 bits, not 32
    isolated      kept apart for all clusters (`?isGlobal=true`) and for this cluster; topic policies only
    removable     DELETE exists
    removed       the stored value after DELETE; None: no value
    removal_reads_body   DELETE refuses a body that does not fit, before anything else
    per_cluster   kept per cluster; REST reads and sets the value of this cluster
    convert       from the body to the stored value (unknown texts become "not set")
    when_unset    the answer to GET without a value; None is an empty body
    unset_status  status of that empty body
    applied       the value in force for a topic (topic policies, `?applied=true`)
    set_status    answer to a successful change
    """

    path: str
    field: str
    kind: Any
    verb: str = "POST"
    rule: Rule | None = None
    null_clears: bool = False
    null_ignored: bool = False
    wide: bool = False
    isolated: bool = True
    removable: bool = True
    removed: Any = None
    removal_reads_body: bool = False
    per_cluster: bool = False
    convert: Callable[[Any], Any] = _unchanged
    when_unset: Any = None
    unset_status: int = 200
    applied: Callable[[TopicConfig], Any] | None = None
    set_status: int = 204

    def read(self, policies: msgspec.Struct, cluster: str) -> Any:
        """The value that the policies have, or None."""
        value = getattr(policies, self.field)
        return value.get(cluster) if self.per_cluster else value

    def written(self, policies: Any, value: Any, cluster: str) -> Any:
        """A copy of the policies with the value; None unsets it."""
        if self.per_cluster:
            values = {k: v for k, v in getattr(policies, self.field).items() if k != cluster}
            return msgspec.structs.replace(
                policies, **{self.field: values if value is None else values | {cluster: value}}
            )
        if value is None:
            value = _default_of(type(policies), self.field)
        return msgspec.structs.replace(policies, **{self.field: value})

    async def refuse_misfit(self, call: Call) -> None:
        """Raises 400 for a body of another type, and for an absent body where a value is needed: Apache Pulsar reads
        the body before it looks for the topic or namespace of the path.
        """
        given = await call.body(self.kind)
        needed = self.kind in (int, bool) and not (self.null_clears or self.null_ignored)
        if given is None and needed and not (await call.raw_body()).strip():
            raise RestError(400, EMPTY_BODY)

    async def value_of_body(self, call: Call) -> Any:
        """The new value; raises RestError for an invalid value. Null means 0 or false for a number or truth value,
        unless `null_clears`.
        """
        value = await call.body(self.kind)
        if self.null_clears and self.kind in (int, bool) and is_null_text((await call.raw_body()).strip()):
            return None
        if self.kind is str and is_no_choice((await call.raw_body()).strip()):
            raise RestError(400, "a value of an enumeration is its name or its number")
        if value is None and not self.null_clears:
            if self.field == "subscription_types_enabled":
                raise RestError(500, "subscription types are required")
            if self.kind is PersistencePolicies:
                raise rest_refusals.PERSISTENCE_MISSING.error()
            if self.kind not in (int, bool) or not (await call.raw_body()).strip():
                raise RestError(400, EMPTY_BODY)
            value = self.kind()
        if value is None:
            return None
        bits = 64 if self.wide else 32
        if type(value) is int and not fits(value, bits):
            in_text = (await call.raw_body()).lstrip().startswith(b'"')
            raise RestError(400 if in_text else 500, f"{value} is out of range of {bits} bits")
        value = self.convert(value)
        problem = self.rule(value) if self.rule is not None and value is not None else None
        if problem is not None:
            raise problem
        return value

    def show(self, value: Any) -> Any:
        """The answer of GET."""
        return shown(self.when_unset if value is None else value)


def _default_of(kind: type[msgspec.Struct], name: str) -> Any:
    for declared in msgspec.structs.fields(kind):
        if declared.name == name:
            factory = declared.default_factory
            return declared.default if factory is msgspec.NODEFAULT else factory()
    raise AssertionError(f"{kind.__name__} has no field {name}: the tables and the records belong together")
