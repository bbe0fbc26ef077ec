"""Variables of the environment by the names of their options."""

from magnetar.client.environment import VARIABLES, from_environment


def test_absent_and_empty_variables_have_no_value():
    found = from_environment({"MAGNETAR_URL": "pulsar://h:1", "MAGNETAR_TOKEN": "", "OTHER": "x"})
    assert found == dict.fromkeys(VARIABLES) | {"service_url": "pulsar://h:1"}
