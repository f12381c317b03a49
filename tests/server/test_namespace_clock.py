"""The clock of a namespace: the wall clock as of the last beat, and what has passed since."""

from twinbus.clock import READ_APART_MAX_NS, STEP_MIN, NamespaceClock

MS = 1_000_000
HOUR = 3_600_000


class Machine:
    """Its clocks. `stalls_ns`: how long the process stands still while it reads the wall clock."""

    def __init__(self) -> None:
        self.steady_ns = 3_000 * MS
        self.boot_ns = 5_000 * MS
        self.wall = 1_800_000_000_000 * MS
        self.stalls_ns = 0

    def pass_ms(self, ms: int) -> None:
        self.steady_ns += ms * MS
        self.sleep_ms(ms)

    def sleep_ms(self, ms: int) -> None:
        self.boot_ns += ms * MS
        self.wall += ms * MS

    def wall_ns(self) -> int:
        for _ in range(self.stalls_ns // MS):
            self.pass_ms(1)
        return self.wall

    def clock(self) -> NamespaceClock:
        return NamespaceClock(self.wall_ns, lambda: self.boot_ns, lambda: self.steady_ns)


def test_it_shows_the_wall_time_and_goes_on_by_itself() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.now() == 1_800_000_000_000
    machine.pass_ms(250)
    assert clock.now() == 1_800_000_000_250


def test_nobody_sees_that_the_wall_clock_was_set_before_the_beat_does() -> None:
    for by in (HOUR, -HOUR):
        machine = Machine()
        clock = machine.clock()
        machine.wall += by * MS
        machine.pass_ms(20)
        assert clock.now() == 1_800_000_000_020
        assert clock.follow() == by
        assert clock.now() == 1_800_000_000_020 + by
        assert clock.follow() == 0


def test_from_a_second_on_it_is_a_step_and_below_that_nobody_has_to_know() -> None:
    for sign in (1, -1):
        machine = Machine()
        clock = machine.clock()
        machine.wall += sign * (STEP_MIN * MS - 1)
        assert clock.follow() == 0
        machine.wall += sign
        assert clock.follow() == 0
        assert clock.now() == 1_800_000_000_000 + sign * STEP_MIN
        machine.wall += sign * STEP_MIN * MS
        assert clock.follow() == sign * STEP_MIN
        assert clock.now() == 1_800_000_000_000 + 2 * sign * STEP_MIN
    assert STEP_MIN == 1_000


def test_a_wall_clock_that_runs_a_little_fast_is_followed_without_a_step() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(10_000):
        machine.pass_ms(50)
        machine.wall += MS // 2
        assert clock.follow() == 0
    assert clock.now() == machine.wall // MS


def test_a_machine_that_slept_was_not_set() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.sleep_ms(HOUR)
    assert clock.follow() == 0
    assert clock.now() == 1_800_000_000_000 + HOUR
    machine.pass_ms(HOUR)
    assert clock.now() == 1_800_000_000_000 + 2 * HOUR


def test_a_machine_that_slept_and_was_set_then_was_set_by_that_much_alone() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.sleep_ms(HOUR)
    machine.wall -= 5_000 * MS
    assert clock.follow() == -5_000
    assert clock.now() == 1_800_000_000_000 + HOUR - 5_000


def test_a_process_that_stands_still_between_its_readings_takes_nothing_for_a_step() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.stalls_ns = max(READ_APART_MAX_NS, 5 * STEP_MIN * MS)
    assert clock.follow() == 0
    assert clock.now() == machine.wall // MS
    machine.stalls_ns = 0
    machine.wall += HOUR * MS
    assert clock.follow() == HOUR
