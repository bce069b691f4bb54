"""How many threads: what was set, the environment, the cores, the quota of the container."""

import os
import threading

import pytest

import regard
from regard.threads import _granted

NO_LIMIT = 2**31


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setattr(regard.threads, "_chosen", None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def cores():
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count()


def test_default_is_the_cores_of_the_process_or_its_quota():
    assert regard.get_num_threads() == min(cores(), _granted())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_default_follows_the_affinity():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert regard.get_num_threads() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("text", "n"), [("3", 3), ("5,2", 5), (" 2 ", 2)])
def test_omp_num_threads(monkeypatch, text, n):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert regard.get_num_threads() == n


@pytest.mark.parametrize("text", ["", "0", "-1", "many"])
def test_nonsense_in_the_environment_is_ignored(monkeypatch, text):
    default = regard.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert regard.get_num_threads() == default


def test_setting_it_wins_in_every_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    regard.set_num_threads(7)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(regard.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [7]


def test_setting_it_from_many_threads_leaves_one_of_their_numbers():
    seen = set()

    def set_and_read(n):
        for _ in range(500):
            regard.set_num_threads(n)
            seen.add(regard.get_num_threads())

    threads = [threading.Thread(target=set_and_read, args=(n,)) for n in (3, 1000, 2**31 - 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= {3, 1000, 2**31 - 1}


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError),
                                          (True, TypeError), (None, TypeError)])  # fmt: skip
def test_errors(n, error):
    with pytest.raises(error, match=f"got {n}"):
        regard.set_num_threads(n)


# ------------------------------------------------------------------- the quota of the container


def granted(root, own, files):
    """What is granted where /proc/self/cgroup is `own` and /sys/fs/cgroup holds the files."""
    for name, text in {"proc/self/cgroup": own, **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return _granted(str(root))


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000\n", NO_LIMIT), ("200000 100000\n", 2), ("150000 100000\n", 2), ("1000 100000\n", 1),
        ("300001 100000\n", 4), ("50000 20000\n", 3), ("", NO_LIMIT), ("100000\n", NO_LIMIT),
        ("0 100000\n", NO_LIMIT), ("100000 0\n", NO_LIMIT), ("nonsense here\n", NO_LIMIT),
    ],
)  # fmt: skip
def test_cpu_max_of_version_2(tmp_path, text, cores):
    assert granted(tmp_path, "0::/a.slice/b\n", {f"{V2}/a.slice/b/cpu.max": text}) == cores


def test_the_least_limit_on_the_way_up_counts(tmp_path):
    files = {
        f"{V2}/a/b/c/cpu.max": "700000 100000", f"{V2}/a/b/cpu.max": "300000 100000",
        f"{V2}/a/cpu.max": "max 100000", f"{V2}/other/cpu.max": "100000 100000",
    }  # fmt: skip
    assert granted(tmp_path, "0::/a/b/c\n", files) == 3


@pytest.mark.parametrize("own", ["0::/\n", "0::/docker/abc\n", "0::/../outside\n"])
def test_a_container_finds_its_own_limit_at_the_top(tmp_path, own):
    """Whether it is told its path from the host's top, from its own, or from beside it."""
    assert granted(tmp_path, own, {f"{V2}/cpu.max": "250000 100000"}) == 3


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [("-1", "100000", NO_LIMIT), ("250000", "100000", 3), ("1000", "100000", 1), ("50000", "50000", 1)],
)  # fmt: skip
@pytest.mark.parametrize("folder", [V1, "sys/fs/cgroup/cpu"])
def test_quota_and_period_of_version_1(tmp_path, folder, quota, period, cores):
    own = "12:memory:/x\n4:cpu,cpuacct:/docker/abc\n1:cpuset:/docker\n0::/unified\n"
    files = {
        f"{folder}/docker/abc/cpu.cfs_quota_us": f"{quota}\n",
        f"{folder}/docker/abc/cpu.cfs_period_us": f"{period}\n",
        "sys/fs/cgroup/memory/x/cpu.cfs_quota_us": "1\n",  # of another controller
        "sys/fs/cgroup/memory/x/cpu.cfs_period_us": "1\n",
    }
    assert granted(tmp_path, own, files) == cores


def test_version_2_beside_version_1(tmp_path):
    own = "3:memory:/m\n0::/user\n"
    assert granted(tmp_path, own, {"sys/fs/cgroup/unified/user/cpu.max": "100000 50000"}) == 2


def test_no_control_groups_at_all(tmp_path):
    assert _granted(str(tmp_path)) == NO_LIMIT


def test_the_quota_limits_the_cores_and_not_what_was_set(tmp_path, monkeypatch):
    one = granted(tmp_path, "0::/\n", {f"{V2}/cpu.max": "20000 100000"})
    monkeypatch.setattr(regard.threads, "_granted", lambda: one)
    assert regard.get_num_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert regard.get_num_threads() == 3
