"""What the suite lends to a plugin is used by the plugin's threads while the suite's own goes on."""

from array import array

from pih.conformance.engines import Recorder
from pih.conformance.standins import Pool
from pih_runtime.plan import Cache, Limits, Plan
from pih_runtime.step import Sampling, Step

PLAN = Plan("tiny", Limits(4, 1, 16), 32, 64, (), (Cache("kv", 1, 1, 16, 16, 1, "f32"),), (), ())


def test_a_step_is_looked_at_while_another_request_comes():
    backend = Recorder(PLAN, Pool())

    class Prompt(tuple):
        __slots__ = ()

        def __len__(self):  # as if the other thread had its turn in the middle
            backend.asked[7, 8] = Sampling()
            return super().__len__()

    backend.asked |= {Prompt([1]): Sampling(), (5,): Sampling()}
    one, zero = array("i", [1]), array("i", [0])
    ticket = backend.submit(Step(one, zero, array("i", [0, 1]), zero, 1, zero, zero, zero, (Sampling(),)))
    assert backend.wait(ticket) == [2]
    assert backend.wrong == []


def test_free_pages_are_counted_while_one_is_given_back():
    pool = Pool()

    class Users(int):
        __slots__ = ()

        def __bool__(self):  # as if the other thread were in the middle of it
            pool._users.pop(15, None)
            return super().__bool__()

    pool._users[0] = Users(1)
    assert pool.pages_free() == 15
