/* On which CPUs a rank runs, on a made-up machine of two NUMA nodes: CPUs 0 and 2 with the GPU
 * 0000:01:00.0, CPUs 1 and 3 with the GPU 0000:02:00.0, and a GPU whose location is unknown. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/devices.h"
#include "test.h"

#ifdef DTRAIN_HAVE_HWLOC
#include <hwloc.h>

static const char NEAR_0[] = "0000:01:00.0", NEAR_1[] = "0000:02:00.0",
                  SOMEWHERE[] = "0000:09:00.0";

static void find_machine(char path[DT_PATH_MAX])
{
    const char *source = getenv("DTRAIN_SOURCE_DIR");
    assert_int_equal(dt_file_path(path, "%s/tests/support/two_nodes.xml", source ? source : "."),
                     DT_OK);
}

static hwloc_topology_t load(const char *path, enum hwloc_type_filter_e pci)
{
    hwloc_topology_t topology;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, pci), 0);
    assert_int_equal(hwloc_topology_set_xml(topology, path), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    return topology;
}

struct choice_case {
    const char *bus_id, *allowed;
    const char *chosen; /* NULL = nothing to do */
};

static const struct choice_case choice_cases[] = {
    {NEAR_0, "0-3", "0,2"},   {NEAR_1, "0-3", "1,3"},
    {NEAR_0, "0-1", "0"},                                    /* of what is allowed */
    {NEAR_1, "1-2", "1"},     {NEAR_1, "1-9", "1,3"},        /* more CPUs than hwloc knows */
    {NEAR_0, "0,2", NULL},                                   /* in that node already */
    {NEAR_0, "2", NULL},                                     /* in a part of it */
    {NEAR_0, "1,3", NULL},                                   /* in the other one: never widened */
    {NEAR_1, "0", NULL},                                     /* the same */
    {SOMEWHERE, "0-3", NULL}, {"0000:03:00.0", "0-3", NULL}, /* no such device */
    {"", "0-3", NULL},
};

static void check_choice(hwloc_topology_t topology, const struct choice_case *c, const char *chosen)
{
    char list[64];
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_bitmap_list_sscanf(cpus, c->allowed), 0);
    bool is_cut = dt_numa_choose(topology, c->bus_id, cpus);
    hwloc_bitmap_list_snprintf(list, sizeof list, cpus);
    hwloc_bitmap_free(cpus);
    assert_int_equal(is_cut, chosen != NULL);
    assert_string_equal(list, chosen ? chosen : c->allowed);
}

TEST(choice)
{
    char path[DT_PATH_MAX];
    find_machine(path);
    hwloc_topology_t topology = load(path, HWLOC_TYPE_FILTER_KEEP_ALL);
    for (size_t i = 0; i < DT_COUNT(choice_cases); i++)
        check_choice(topology, &choice_cases[i], choice_cases[i].chosen);
    hwloc_topology_destroy(topology);
}

TEST(no_pci)
{
    char path[DT_PATH_MAX];
    find_machine(path);
    hwloc_topology_t topology = load(path, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (size_t i = 0; i < DT_COUNT(choice_cases); i++)
        check_choice(topology, &choice_cases[i], NULL);
    hwloc_topology_destroy(topology);
}

/* --- Binding this process --- */

static cpu_set_t get_cpus(void)
{
    cpu_set_t cpus;
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    return cpus;
}

static int set_machine(void **state)
{
    char path[DT_PATH_MAX];
    static cpu_set_t before;
    before = get_cpus();
    *state = &before;
    find_machine(path);
    return setenv("HWLOC_XMLFILE", path, 1) || setenv("HWLOC_THISSYSTEM", "1", 1);
}

static int restore(void **state)
{
    unsetenv("HWLOC_XMLFILE");
    unsetenv("HWLOC_THISSYSTEM");
    return sched_setaffinity(0, sizeof(cpu_set_t), *state);
}

static cpu_set_t common(const cpu_set_t *allowed, int a, int b)
{
    cpu_set_t pair, both;
    CPU_ZERO(&pair);
    CPU_SET(a, &pair);
    CPU_SET(b, &pair);
    CPU_AND(&both, &pair, allowed);
    return both;
}

TEST_WITH(bind, set_machine, restore)
{
    const cpu_set_t *before = *state;
    char what[256] = "";
    if (!CPU_ISSET(0, before) || !CPU_ISSET(1, before))
        skip();
    for (int gpu = 0; gpu < 2; gpu++) {
        const cpu_set_t near = common(before, gpu, gpu + 2);
        const char *bus_id = gpu == 0 ? NEAR_0 : NEAR_1;
        assert_int_equal(sched_setaffinity(0, sizeof *before, before), 0);
        assert_true(dt_numa_near_gpu(bus_id, what, sizeof what));
        cpu_set_t now = get_cpus();
        assert_true(CPU_EQUAL(&now, &near));
        assert_non_null(strstr(what, bus_id));
        /* Bound already: to the same, and to the other node. */
        assert_false(dt_numa_near_gpu(NEAR_0, what, sizeof what));
        assert_false(dt_numa_near_gpu(NEAR_1, what, sizeof what));
        now = get_cpus();
        assert_true(CPU_EQUAL(&now, &near));
    }
}

/* Without HWLOC_THISSYSTEM the topology is marked as that of another machine. */
TEST_WITH(other_machine, set_machine, restore)
{
    char what[256];
    unsetenv("HWLOC_THISSYSTEM");
    assert_false(dt_numa_near_gpu(NEAR_0, what, sizeof what));
    cpu_set_t now = get_cpus();
    assert_true(CPU_EQUAL(&now, (const cpu_set_t *)*state));
}

int main(void)
{
    unsetenv("HWLOC_COMPONENTS"); /* set by ctest; here PCI devices matter */
    return run_all_tests(NULL, NULL);
}
#else
TEST(without_hwloc)
{
    char what[8] = "";
    assert_false(dt_numa_near_gpu("0000:01:00.0", what, sizeof what));
    assert_string_equal(what, "");
}

TEST_MAIN(NULL, NULL)
#endif
