import asyncio

from magnetar.broker.foreign_entries.flights import Flights
from magnetar.broker.foreign_entries.frames import DECLINED
from tests.broker.foreign_entries.converting_for_tests import rounds

KEY = (1, 2, "c/1")


async def test_a_flight_is_there_until_its_result_is_kept_elsewhere():
    flights, future = Flights(lambda: 5.0), asyncio.get_running_loop().create_future()
    heard = []
    flight = flights.launch(KEY, future, lambda answer, seconds: heard.append((answer, seconds)) or True)
    assert flights.get(KEY) is flight
    assert flight.is_under_way
    future.set_result(DECLINED)
    await rounds()
    assert heard == [(DECLINED, 0.0)]
    assert not flight.is_under_way
    assert flights.get(KEY) is None


async def test_entries_without_a_reader_stay_for_a_returning_consumer():
    flights, future = Flights(lambda: 0.0), asyncio.get_running_loop().create_future()
    flights.launch(KEY, future, lambda answer, seconds: False)
    future.set_result(DECLINED)
    await rounds()
    assert flights.get(KEY).answer is DECLINED


async def test_a_cancelled_flight_is_over_without_an_answer():
    flights, future = Flights(lambda: 0.0), asyncio.get_running_loop().create_future()
    flight = flights.launch(KEY, future, lambda answer, seconds: True)
    future.cancel()
    await rounds()
    assert not flight.is_under_way
    assert flight.answer is None
    assert len(flights) == 0
