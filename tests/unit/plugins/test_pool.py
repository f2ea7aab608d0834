"""memory/paged: no page in two places, all come back, reuse only of equal prefixes."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pih_memory_paged import PagedPool

PAGE = 4
IDS = st.lists(st.integers(0, 1), min_size=1, max_size=20)


class PoolMachine(RuleBasedStateMachine):
    """Model: what was last written to each cache row. A reused row must hold the id that its new owner has there."""

    def __init__(self):
        super().__init__()
        self.pool = PagedPool(7, PAGE)
        self.sequences = {}  # key -> ids
        self.computed = {}  # key -> positions written
        self.rows = {}  # (page, offset) -> ids from position 0 up to the one written there
        self.next_key = 0

    @rule(ids=IDS)
    def begin(self, ids):
        key, self.next_key = self.next_key, self.next_key + 1
        reused = self.pool.begin(key, ids)
        assert reused % PAGE == 0
        assert reused < len(ids)
        self.sequences[key], self.computed[key] = ids, reused
        for position in range(reused):
            assert self.rows[self.row(key, position)] == ids[: position + 1]

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), count=st.integers(1, 9))
    def compute(self, data, count):
        key = data.draw(st.sampled_from(sorted(self.sequences)))
        ids, start = self.sequences[key], self.computed[key]
        end = start + count
        ids += data.draw(st.lists(st.integers(0, 1), min_size=max(0, end - len(ids)), max_size=max(0, end - len(ids))))
        free, held = self.pool.pages_free(), list(self.pool.pages(key))
        if not self.pool.grow(key, end):
            assert -(-end // PAGE) - len(held) > free
            assert (self.pool.pages_free(), list(self.pool.pages(key))) == (free, held)
            return
        for position in range(start, end):
            self.rows[self.row(key, position)] = ids[: position + 1]
        self.computed[key] = end
        self.pool.computed(key, ids[:end])

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def end(self, data):
        key = data.draw(st.sampled_from(sorted(self.sequences)))
        self.pool.end(key)
        del self.sequences[key], self.computed[key]

    def row(self, key, position):
        return self.pool.pages(key)[position // PAGE], position % PAGE

    @invariant()
    def every_sequence_reads_its_own_ids(self):
        for key, ids in self.sequences.items():
            for position in range(self.computed[key]):
                assert self.rows[self.row(key, position)] == ids[: position + 1]

    @invariant()
    def no_page_is_in_two_places(self):
        used = {page for key in self.sequences for page in self.pool.pages(key)}
        assert len(used) + self.pool.pages_free() == self.pool.pages_total
        for key in self.sequences:
            assert len(set(self.pool.pages(key))) == len(self.pool.pages(key))

    def teardown(self):
        for key in self.sequences:
            self.pool.end(key)
        assert self.pool.pages_free() == self.pool.pages_total


TestPool = PoolMachine.TestCase


def filled(pool, key, ids):
    pool.begin(key, ids)
    assert pool.grow(key, len(ids))
    pool.computed(key, ids)
    pool.end(key)


def test_a_known_prefix_is_reused_in_whole_pages_and_one_id_is_left_to_compute():
    pool = PagedPool(8, PAGE)
    filled(pool, 0, list(range(8)))
    assert pool.begin(1, list(range(8))) == 4
    assert pool.begin(2, list(range(9))) == 8
    assert pool.pages(1)[0] == pool.pages(2)[0]
    assert pool.begin(3, [9, *range(1, 8)]) == 0


def test_pages_with_the_same_ids_after_another_prefix_are_not_reused():
    pool = PagedPool(8, PAGE)
    filled(pool, 0, [1, 1, 1, 1, 5, 6, 7, 8])
    assert pool.begin(1, [2, 2, 2, 2, 5, 6, 7, 8, 9]) == 0


def test_the_least_recently_used_prefix_goes_first_and_its_end_before_its_start():
    pool = PagedPool(4, PAGE)
    filled(pool, 0, [0] * 8)
    filled(pool, 1, [1] * 8)
    pool.begin(2, [2])
    assert pool.grow(2, 3 * PAGE)
    assert pool.begin(3, [0] * 9) == 0
    assert pool.begin(4, [1] * 9) == 4


def test_a_reused_page_is_not_taken_back_while_in_use():
    pool = PagedPool(2, PAGE)
    filled(pool, 0, [0] * 5)
    assert pool.begin(1, [0] * 5) == 4
    pool.begin(2, [7])
    assert pool.pages_free() == 1
    assert not pool.grow(2, 2 * PAGE)
    assert pool.grow(2, PAGE)
