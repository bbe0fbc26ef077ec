"""The control groups of this process."""

from magnetar.broker.control_groups import VERSION_2, group_paths


def test_the_paths_of_both_versions(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/x\n3:cpuacct,cpu:/docker/1\n1:name=systemd:/\n0::/a/b\n")
    found = group_paths(tmp_path)
    assert (found["memory"], found["cpuacct"], found["cpu"], found[VERSION_2]) == ("x", "docker/1", "docker/1", "a/b")


def test_a_system_without_groups(tmp_path):
    assert group_paths(tmp_path) == {}
