from magnetar.broker.foreign_entries.frames import DECLINED
from magnetar.broker.foreign_entries.worker import answer
from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.examples import BytesConverter
from tests.broker.foreign_entries.converting_for_tests import foreign


def test_the_worker_itself_chooses():
    chain = ConverterChain([loaded(BytesConverter())])
    assert answer(chain, foreign(b"x")).messages == 1
    assert answer(chain, foreign(b"x", None)) is DECLINED
    assert answer(chain, b"") is DECLINED
    assert answer(chain, foreign(b"x", messages=3)).message == "raw bytes cannot hold 3 messages"
