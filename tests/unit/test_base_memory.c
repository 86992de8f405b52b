/* Available memory, CPU quotas and out-of-memory kills, read from made-up proc and cgroup files. */
#include <math.h>

#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "test_dir.h"

static void put(const char *folder, const char *name, const char *text)
{
    char path[DT_PATH_MAX];
    assert_int_equal(dt_file_make_folder(at(folder)), DT_OK);
    assert_int_equal(dt_file_path(path, "%s/%s/%s", test_dir, folder, name), DT_OK);
    assert_int_equal(dt_file_save(path, text, strlen(text)), DT_OK);
}

TEST_WITH(use, make_test_dir, remove_test_dir)
{
    struct dt_memory_use use;
    dt_memory_use(&use, test_dir);
    assert_true(use.total == 0 && use.available == 0 && use.cached == 0 && use.resident == 0);
    put("proc", "meminfo",
        "MemTotal:  9000 kB\nMemAvailable:  8000 kB\nCached: 700 kB\nSwapCached: 5 kB\n");
    put("proc/self", "status", "Name: x\nVmHWM: 70 kB\nVmRSS:\t      60 kB\nThreads: 3\n");
    dt_memory_use(&use, test_dir);
    assert_true(use.total == 9000 * 1024 && use.available == 8000 * 1024);
    assert_true(use.cached == 700 * 1024 && use.resident == 60 * 1024);
    dt_memory_use(&use, "");
    assert_true(use.total > use.available && use.available > 0 && use.resident > 0);
}

TEST_WITH(least_of_all, make_test_dir, remove_test_dir)
{
    assert_true(dt_memory_available(test_dir) == INT64_MAX); /* nothing known, no limit */
    put("proc", "meminfo", "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:  8000 kB\n");
    assert_int_equal(dt_memory_available(test_dir), 8000 * 1024);
    put("proc/self", "cgroup", "4:memory:/old\n0::/jobs/7\n");
    assert_int_equal(dt_memory_available(test_dir), 8000 * 1024);
    put("sys/fs/cgroup/old", "memory.max", "5\n");
    put("sys/fs/cgroup/jobs/7", "memory.max", "max\n");
    assert_int_equal(dt_memory_available(test_dir), 8000 * 1024);
    put("sys/fs/cgroup/jobs", "memory.max", "300000\n");
    assert_int_equal(dt_memory_available(test_dir), 300000);
    put("sys/fs/cgroup/jobs/7", "memory.max", "200000\n");
    assert_int_equal(dt_memory_available(test_dir), 200000);
    put("sys/fs/cgroup", "memory.max", "100000\n"); /* a container sees itself as the root */
    assert_int_equal(dt_memory_available(test_dir), 100000);
}

TEST_WITH(limit, make_test_dir, remove_test_dir)
{
    assert_true(dt_memory_limit(test_dir) == INT64_MAX);
    put("proc/self", "cgroup", "0::/jobs/7\n");
    put("proc", "meminfo", "MemAvailable:  1 kB\n");
    put("sys/fs/cgroup/jobs", "memory.max", "300000\n");
    put("sys/fs/cgroup/jobs/7", "memory.max", "400000\n");
    assert_int_equal(dt_memory_limit(test_dir), 300000);
    put("sys/fs/cgroup/jobs/7", "memory.current", "390000\n");
    put("sys/fs/cgroup/jobs/7", "memory.stat",
        "anon 5\ninactive_anon 6\ninactive_file 90000\nactive_file 10000\n");
    assert_int_equal(dt_memory_limit(test_dir), 300000);
    put("proc", "meminfo", "MemAvailable:  8000 kB\n");
    assert_int_equal(dt_memory_available(test_dir), 400000 - 290000);
    put("sys/fs/cgroup/jobs", "memory.current", "300001\n");
    assert_int_equal(dt_memory_available(test_dir), 0);
}

static void expect_cpus(double quota, int of_8)
{
    assert_true(dt_cpu_quota(test_dir) == quota);
    assert_int_equal(dt_cpus_within(8, test_dir), of_8);
}

TEST_WITH(cpu_quota, make_test_dir, remove_test_dir)
{
    expect_cpus(INFINITY, 8);
    put("proc/self", "cgroup", "0::/jobs/7\n");
    put("sys/fs/cgroup/jobs/7", "cpu.max", "max 100000\n");
    expect_cpus(INFINITY, 8);
    put("sys/fs/cgroup/jobs", "cpu.max", "250000 100000\n"); /* of an ancestor */
    expect_cpus(2.5, 3);
    put("sys/fs/cgroup/jobs/7", "cpu.max", "50000 100000\n");
    expect_cpus(0.5, 1);
    put("sys/fs/cgroup/jobs/7", "cpu.max", "6400000 100000\n");
    put("sys/fs/cgroup/jobs", "cpu.max", "0 0\n");
    expect_cpus(64, 8);
}

TEST_WITH(cpu_quota_of_version_1, make_test_dir, remove_test_dir)
{
    static const char *const lines[] = {"9:cpu", "9:cpu,cpuacct", "9:cpuacct,cpu"};
    char text[64];
    put("sys/fs/cgroup/cpu/a", "cpu.cfs_quota_us", "-1\n"); /* none */
    put("sys/fs/cgroup/cpu/a", "cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "75000\n"); /* a container is the root */
    put("sys/fs/cgroup/cpu", "cpu.cfs_period_us", "50000\n");
    put("proc/self", "cgroup", "5:cpuset:/a\n6:memory:/a\n");
    expect_cpus(INFINITY, 8);
    for (size_t i = 0; i < DT_COUNT(lines); i++) {
        snprintf(text, sizeof text, "5:cpuset:/b\n%s:/a\n0::/\n", lines[i]);
        put("proc/self", "cgroup", text);
        expect_cpus(1.5, 2);
    }
}

/* Version 1, with a version 2 that limits nothing. */
TEST_WITH(limit_of_version_1, make_test_dir, remove_test_dir)
{
    struct dt_memory_kills kills;
    char text[64];
    put("proc/self", "cgroup", "8:pids:/a\n4:memory:/jobs/7\n0::/\n");
    put("sys/fs/cgroup/memory/jobs/7", "memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(dt_memory_limit(test_dir) == INT64_MAX);
    assert_string_equal(dt_memory_limit_text(text, sizeof text, test_dir), "");
    put("sys/fs/cgroup/memory/jobs", "memory.limit_in_bytes", "400000000\n");
    put("sys/fs/cgroup/memory/jobs", "memory.usage_in_bytes", "160000000\n");
    put("sys/fs/cgroup/memory/jobs", "memory.stat",
        "inactive_file 7\ntotal_inactive_file 20000000\ntotal_active_file 10000000\n");
    assert_int_equal(dt_memory_limit(test_dir), 400000000);
    assert_int_equal(dt_memory_available(test_dir), 270000000);
    assert_string_equal(dt_memory_limit_text(text, sizeof text, test_dir),
                        " (the memory of this job is limited to 400 MB)");
    put("proc/sys/kernel/random", "boot_id", "13fa2aed-2b4c\n");
    put("sys/fs/cgroup/memory/jobs/7", "memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    assert_true(dt_memory_read_kills(&kills, test_dir));
    assert_int_equal(kills.n, 2);
}

/* Rather than to be killed. */
TEST(too_large)
{
    assert_null(dt_mem_alloc_aligned((size_t)1 << 50, "this test"));
    assert_non_null(strstr(dt_error_text(), "out of memory: 1.1 PB for this test, but only "));
}

TEST_WITH(kills, make_test_dir, remove_test_dir)
{
    struct dt_memory_kills kills;
    assert_false(dt_memory_read_kills(&kills, test_dir));
    put("proc/sys/kernel/random", "boot_id", "13fa2aed-2b4c\n");
    put("proc/self", "cgroup", "4:memory:/old\n0::/jobs/7\n");
    assert_false(dt_memory_read_kills(&kills, test_dir));
    put("sys/fs/cgroup/jobs/7", "memory.events", "low 0\nmax 4\noom 2\n");
    assert_false(dt_memory_read_kills(&kills, test_dir));
    put("sys/fs/cgroup/jobs/7", "memory.events",
        "low 0\nmax 4\noom 2\noom_kill 3\noom_group_kill 1\n");
    assert_true(dt_memory_read_kills(&kills, test_dir));
    assert_string_equal(kills.group, "13fa2aed-2b4c /jobs/7");
    assert_int_equal(kills.n, 3);
}

TEST(format)
{
    static const struct {
        uint64_t value;
        const char *text;
    } cases[] = {{0, "0 bytes"},        {999, "999 bytes"},      {1000, "1.0 kB"},
                 {9949, "9.9 kB"},      {31400000, "31 MB"},     {205000000, "205 MB"},
                 {999499999, "999 MB"}, {999500000, "1.0 GB"},   {1500000000, "1.5 GB"},
                 {84u << 20, "88 MB"},  {UINT64_MAX, "18447 PB"}};
    char text[32];
    for (size_t i = 0; i < DT_COUNT(cases); i++)
        assert_string_equal(dt_memory_format(text, sizeof text, cases[i].value), cases[i].text);
}

TEST(this_machine)
{
    uint64_t bytes = dt_memory_available("");
    assert_true(bytes > 1 << 20 && bytes < (uint64_t)1 << 50);
}

TEST_MAIN(NULL, NULL)
