/* Hosts in all their forms, and the command lines of all launchers. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "launch/launcher.h"
#include "test.h"
#include "test_dir.h"
#include "test_status.h"

static void write_program(const char *name, const char *script)
{
    write_text(name, script);
    assert_int_equal(chmod(at(name), 0755), 0);
}

static void expect_hosts(const char *hosts, const char *hostfile, const char *expected)
{
    struct dt_launch_hosts found;
    char text[256] = "";
    struct dt_text line = dt_text_in(text, sizeof text);
    assert_ok(dt_launch_hosts_find(&found, hosts, hostfile));
    for (int i = 0; i < found.n; i++)
        dt_text_add(&line, "%s=%d ", found.list[i].name, found.list[i].slots);
    assert_string_equal(text, expected);
    free(found.list);
}

TEST(hosts)
{
    expect_hosts("a:8,b:8", NULL, "a=8 b=8 ");
    expect_hosts("a,b,a", NULL, "a=2 b=1 ");
    write_text("hosts", "# of the job\nnode1 slots=4 max_slots=4\nnode2:2\r\n\n node3\t# one\n");
    expect_hosts(NULL, at("hosts"), "node1=4 node2=2 node3=1 ");
    write_text("hosts",
               "\xef\xbb\xbfnode1 slots = 2\r\nnode2 Slots =3 max_slots= 4\r\n\tme@node3:2 \r\n");
    expect_hosts(NULL, at("hosts"), "node1=2 node2=3 me@node3=2 ");
    expect_hosts(NULL, NULL, "");
    write_text("nodes", "n1\nn1\nn2\nn2\n");
    setenv("PBS_NODEFILE", at("nodes"), 1);
    expect_hosts(NULL, NULL, "n1=2 n2=2 ");
    expect_hosts("c", NULL, "c=1 ");
    unsetenv("PBS_NODEFILE");
}

TEST(hosts_of_slurm)
{
    char path[256];
    write_program("scontrol", "#!/bin/sh\necho \"$1 $2\" | grep -qx 'show hostnames' || exit 1\n"
                              "printf 'n1\\nn2\\nn3\\n'\n");
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", at(""));
    setenv("PATH", path, 1);
    setenv("SLURM_JOB_NODELIST", "n[1-3]", 1);
    setenv("SLURM_TASKS_PER_NODE", "8(x2),4", 1);
    expect_hosts(NULL, NULL, "n1=8 n2=8 n3=4 ");
    unsetenv("SLURM_TASKS_PER_NODE");
    expect_hosts(NULL, NULL, "n1=1 n2=1 n3=1 ");
    setenv("PATH", at("nowhere"), 1); /* no scontrol: Slurm's launcher knows them */
    expect_hosts(NULL, NULL, "");
    unsetenv("SLURM_JOB_NODELIST");
    setenv("PATH", "/usr/bin:/bin", 1);
}

/* A host that has never answered may be one that cannot be asked: it is not dropped. */
TEST(gone_hosts)
{
    static const struct {
        const char *answers, *silent;
        int slots;
    } looks[] = {{"b", "a", 6}, {"a b", "", 6}, {"b", "a", 4}, {"", "a, b", 0}, {"a b", "", 6}};
    struct dt_launch_hosts hosts;
    char silent[64], script[128];
    write_program("agent", "#!/bin/sh\ngrep -qw \"$1\" \"${0%/*}/there\"\n");
    setenv("OMPI_MCA_plm_rsh_agent", at("agent"), 1);
    assert_ok(dt_launch_hosts_find(&hosts, "a:2,b:4", NULL));
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        snprintf(script, sizeof script, "%s\n", looks[i].answers);
        write_text("there", script);
        dt_launch_hosts_clean(&hosts, "id", silent, sizeof silent);
        assert_string_equal(silent, looks[i].silent);
        assert_int_equal(dt_launch_slots(&hosts), looks[i].slots);
    }
    free(hosts.list);
    unsetenv("OMPI_MCA_plm_rsh_agent");
}

/* What killed ranks of Open MPI leave in /dev/shm is removed, but nothing that a rank may use. */
TEST(segments)
{
    static const struct {
        const char *name;
        bool is_old, is_open, is_mapped, stays;
    } cases[] = {
        {"vader_segment.a", true, false, false, false}, {"sm_segment.a", true, false, false, false},
        {"vader_segment.b", true, true, false, true},   {"sm_segment.c", true, false, true, true},
        {"vader_segment.d", false, false, false, true}, {"segment.e", true, false, false, true}};
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct dt_launch_hosts hosts = {0};
    char paths[sizeof cases / sizeof *cases][64], silent[64];
    int fds[sizeof cases / sizeof *cases];
    void *memory[sizeof cases / sizeof *cases];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(paths[i], sizeof paths[i], "/dev/shm/%s.test.%d", cases[i].name, (int)getpid());
        fds[i] = open(paths[i], O_RDWR | O_CREAT | O_EXCL, 0600);
        assert_true(fds[i] >= 0 && ftruncate(fds[i], 4096) == 0);
        memory[i] = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[i], 0);
        assert_true(!cases[i].is_old || futimens(fds[i], old) == 0);
        if (!cases[i].is_open)
            close(fds[i]);
        if (!cases[i].is_mapped)
            munmap(memory[i], 4096);
    }
    dt_launch_hosts_clean(&hosts, "id", silent, sizeof silent);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if ((unlink(paths[i]) == 0) != cases[i].stays)
            fail_msg("%s %s", paths[i], cases[i].stays ? "is gone" : "is left");
}

TEST(bad_hosts)
{
    static const char *const texts[] = {"a:0", "a:x", "a:3x", "-oProxyCommand=x",
                                        ":3",  ",",   "a:-1", "a slots=70000"};
    struct dt_launch_hosts found;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_error(dt_launch_hosts_find(&found, texts[i], NULL), DT_ERR_USAGE, "--hosts");
        free(found.list);
    }
    static const char *const lines[] = {"b slots=x",
                                        "b slots",
                                        "b slots = ",
                                        "b max_slots=4",
                                        "b,c",
                                        "b slots=2,",
                                        "\xef\xbb\xbf"
                                        "b",
                                        "\xff\xfe"
                                        "b",
                                        "b\rc"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[64];
        snprintf(text, sizeof text, "a\n\n%s\n", lines[i]);
        write_text("hosts", text);
        assert_error(dt_launch_hosts_find(&found, NULL, at("hosts")), DT_ERR_USAGE, "hosts:3: \"");
        assert_non_null(strstr(dt_error_text(), "\" is not a host such as node1, node1:8 or"));
        free(found.list);
    }
    assert_error(dt_launch_hosts_find(&found, NULL, at("none")), DT_ERR_NO_INPUT, "none");
}

/* The command line with a launcher that says `version`; the program is dropped. */
static void expect_command(const char *version, const struct dt_launch_options *options,
                           const char *hosts, int n_ranks, const char *expected)
{
    struct dt_launch_hosts found;
    const struct dt_launcher *launcher;
    struct dt_words words = {0};
    char script[256], text[1024];
    snprintf(script, sizeof script, "#!/bin/sh\necho '%s'\n", version);
    write_program("launcher", script);
    setenv("DTRAIN_MPIRUN", at("launcher"), 1);
    assert_int_equal(dt_launch_hosts_find(&found, hosts, NULL), DT_OK);
    assert_int_equal(dt_launcher_find(&launcher), DT_OK);
    assert_int_equal(dt_launcher_command(&words, launcher, options, &found, n_ranks), DT_OK);
    dt_words_quote(text, sizeof text, &words);
    /* Its path is in quotes if there are blanks in it. */
    char *end = strstr(text, options->program ? options->program : " '/");
    end = end ? end : strstr(text, " /");
    assert_non_null(end);
    end[options->program ? -1 : 0] = '\0';
    assert_string_equal(strchr(text, ' ') + 1, expected);
    dt_words_reset(&words);
    free(found.list);
}

TEST(command_lines)
{
    static char *words[] = {(char *)"--config", (char *)"it's mine.json"};
    struct dt_launch_options options = {.words = words, .n_words = 2};
    const char *variables[] = {"DATA=/a b", "SCRATCH"};
    const struct dt_launch_options bound = {.n_cpus = 4, .interface = "eth0"};
    const struct dt_launch_options inside = {
        .program = "apptainer exec d.sif dtrain", .variables = variables, .n_variables = 2};
    clearenv();
    setenv("PATH", "/usr/bin:/bin", 1);
    setenv("NCCL_DEBUG", "WARN", 1);
    expect_command("mpirun (Open MPI) 4.1.4", &options, "a:2,b:2", 4,
                   "-np 4 --host a:2,b:2 --bind-to none --mca oob_tcp_keepalive_time 10 --mca "
                   "oob_tcp_keepalive_intvl 5 --mca oob_tcp_keepalive_probes 3 -x PATH -x "
                   "NCCL_DEBUG -x DTRAIN_MPIRUN");
    expect_command("mpirun (Open MPI) 5.0.11", &bound, "a:2", 4,
                   "-np 4 --host a:2 --map-by slot:PE=4 --oversubscribe --mca "
                   "oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 --mca "
                   "oob_tcp_keepalive_probes 3 -x PATH -x NCCL_DEBUG -x DTRAIN_MPIRUN -x "
                   "NCCL_SOCKET_IFNAME");
    assert_string_equal(getenv("PRTE_MCA_oob_tcp_if_include"), "eth0");
    assert_string_equal(getenv("NCCL_SOCKET_IFNAME"), "=eth0");
    expect_command("mpirun (Open MPI) 4.1.4", &inside, "a:2", 2,
                   "-np 2 --host a:2 --bind-to none --mca oob_tcp_keepalive_time 10 --mca "
                   "oob_tcp_keepalive_intvl 5 --mca oob_tcp_keepalive_probes 3 -x DATA -x SCRATCH "
                   "-x PATH -x NCCL_DEBUG -x DTRAIN_MPIRUN -x NCCL_SOCKET_IFNAME");
    expect_command("HYDRA build details:", &options, "a:2,b:1", 3,
                   "-n 3 -hosts a:2,b:1 -bind-to none");
    expect_command("Intel(R) MPI Library for Linux* OS", &bound, "a:2,b:2", 4,
                   "-n 4 -hosts a,b -ppn 2 -genv I_MPI_PIN_DOMAIN 4");
    expect_command("mpirun (Open MPI) 4.1.4", &options, NULL, 1,
                   "-np 1 --bind-to none --oversubscribe --mca oob_tcp_keepalive_time 10 --mca "
                   "oob_tcp_keepalive_intvl 5 --mca oob_tcp_keepalive_probes 3");
    setenv("SLURM_JOB_ID", "1", 1);
    expect_command("slurm 23.11.4", &options, "a:2,b:2", 4,
                   "-n 4 --nodelist a,b --ntasks-per-node=2 --nodes=2 --cpu-bind=none --mpi=pmix "
                   "--kill-on-bad-exit=1");
}

TEST(words_are_quoted)
{
    struct dt_words words = {0};
    char text[128];
    assert_int_equal(dt_words_add(&words, "it's"), DT_OK);
    assert_int_equal(dt_words_add(&words, "%s", ""), DT_OK);
    assert_int_equal(dt_words_add(&words, "a=b/c"), DT_OK);
    assert_int_equal(dt_words_add(&words, "$x"), DT_OK);
    dt_words_quote(text, sizeof text, &words);
    assert_string_equal(text, "'it'\\''s' '' a=b/c '$x'");
    dt_words_reset(&words);
}

TEST_MAIN(make_test_dir, remove_test_dir)
