"""The table of settings: Apache Pulsar's own key names, units and defaults, as a frozen, typed object.

Every field of `Settings` is a row of `SETTINGS`; `settings_loader` reads values, `settings_docs` writes
conf/standalone.conf and docs/settings.md. A key is in the table only if it has an effect here;
`setting_areas/ignored.py` lists the other keys of Apache Pulsar.
"""

from typing import Final

from magnetar.broker.setting_areas.balancing import BalancingSettings
from magnetar.broker.setting_areas.bookies import BookieSecuritySettings, BookieSettings
from magnetar.broker.setting_areas.cluster import ClusterSettings
from magnetar.broker.setting_areas.converting import ConvertingSettings
from magnetar.broker.setting_areas.delivery import DeliverySettings
from magnetar.broker.setting_areas.doors import DoorSettings
from magnetar.broker.setting_areas.limits import LimitSettings
from magnetar.broker.setting_areas.network import NetworkSettings
from magnetar.broker.setting_areas.operation import OperationSettings
from magnetar.broker.setting_areas.security import SecuritySettings
from magnetar.broker.setting_areas.setting import Setting, Value, rows_of, table
from magnetar.broker.setting_areas.storage import StorageSettings
from magnetar.broker.setting_areas.topic_settings import TopicSettings

__all__ = ["AREAS", "SETTINGS", "Setting", "Settings", "Value"]


@table
class Settings(
    NetworkSettings,
    TopicSettings,
    DeliverySettings,
    LimitSettings,
    ConvertingSettings,
    StorageSettings,
    ClusterSettings,
    BookieSettings,
    BookieSecuritySettings,
    BalancingSettings,
    SecuritySettings,
    DoorSettings,
    OperationSettings,
):
    """All settings of a broker. The attribute of a key is its snake_case form: maxMessageSize is
    `max_message_size`.
    """


AREAS: Final[dict[str, type]] = {
    "Listeners and connections": NetworkSettings,
    "Topics and publishing": TopicSettings,
    "Delivery": DeliverySettings,
    "Rates and shared limits": LimitSettings,
    "Message converters": ConvertingSettings,
    "Storage": StorageSettings,
    "Cluster": ClusterSettings,
    "Cluster: bookies": BookieSettings,
    "Cluster: security of bookies": BookieSecuritySettings,
    "Cluster: load": BalancingSettings,
    "Security": SecuritySettings,
    "Other doors": DoorSettings,
    "Operation": OperationSettings,
}
SETTINGS: Final[dict[str, Setting]] = {
    key: row for area, settings_class in AREAS.items() for key, row in rows_of(settings_class, area).items()
}
