/* The rules of the watchdog on made-up views of the ranks. */
#include "base/file.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "test_dir.h"
#include "watch/diagnosis.h"

enum { N_MAX = 1024 };

static struct dt_view views[N_MAX];
static struct dt_diagnosis diagnosis;

/* All ranks compute and have moved just now. */
static struct dt_diagnosis_case at_work(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        views[r] = (struct dt_view){.is_known = true};
        struct dt_heartbeat *beat = &views[r].beat;
        beat->rank = r;
        beat->pid = 100 + r;
        beat->main.section = DT_SECTION_COMPUTE;
        beat->main.step = 57;
        beat->main.limit_s = 60;
        snprintf(beat->host, sizeof beat->host, "node%d", r);
    }
    return (struct dt_diagnosis_case){.ranks = views,
                                      .n_ranks = n_ranks,
                                      .has_folder = true,
                                      .has_checkpoint = true,
                                      .period_s = 1,
                                      .nodes = ""};
}

static void let_wait(int rank, double seconds)
{
    views[rank].beat.main.section = DT_SECTION_REDUCE;
    views[rank].beat.main.idle_s = seconds;
    strcpy(views[rank].beat.main.waits_for, "sum");
}

static const char *text_of(const struct dt_diagnosis_case *c)
{
    dt_diagnosis_find(&diagnosis, c);
    assert_int_equal(diagnosis.expired, diagnosis.text[0] != '\0');
    return diagnosis.text;
}

TEST(moving)
{
    struct dt_diagnosis_case c = at_work(3);
    assert_string_equal(text_of(&c), "");
    views[1].beat.main.idle_s = 60;
    assert_string_equal(text_of(&c), "");
    /* Others may wait for a rank that moves as long as it takes. */
    let_wait(0, 1000);
    let_wait(2, 1000);
    views[1].beat.main.idle_s = 1;
    assert_string_equal(text_of(&c), "");
    /* Without a limit nothing is too long. */
    views[1].beat.main = (struct dt_heartbeat_thread){.idle_s = 1e6};
    assert_string_equal(text_of(&c), "");
}

TEST(stuck)
{
    struct dt_diagnosis_case c = at_work(4);
    for (int r = 0; r < 4; r++)
        let_wait(r, 59);
    views[1].beat.main = (struct dt_heartbeat_thread){
        .section = DT_SECTION_DATA, .step = 57, .limit_s = 60, .idle_s = 59.5};
    views[1].age_s = 0.7;
    assert_string_equal(
        text_of(&c), "dtrain: error[HANG] rank 1 (node1 pid 101) has not moved since step 57, "
                     "section data, for 60 s; ranks 0, 2, 3 wait for it; the newest checkpoint is "
                     "intact; submit the job again to resume");
    assert_int_equal(diagnosis.speaker, 0);
    c.has_checkpoint = false;
    assert_non_null(strstr(text_of(&c), "; there is no checkpoint yet; submit the job again to"));
    c.has_folder = false;
    assert_null(strstr(text_of(&c), "checkpoint"));
}

TEST(dead)
{
    struct dt_diagnosis_case c = at_work(3);
    c.self = 2;
    /* Nobody misses it yet. */
    views[0].age_s = 1000;
    assert_string_equal(text_of(&c), "");
    let_wait(1, 59);
    let_wait(2, 59);
    assert_string_equal(text_of(&c), "");
    let_wait(1, 61);
    assert_string_equal(
        text_of(&c),
        "dtrain: error[HANG] rank 0 (node0 pid 100) does not answer (stopped, killed or its node "
        "is gone) since step 57, section compute, for 1000 s; ranks 1, 2 wait for it; the newest "
        "checkpoint is intact; submit the job again to resume");
    assert_int_equal(diagnosis.speaker, 1);
    /* A slot is at most a few periods old in health. */
    views[0].age_s = 2.5;
    assert_string_equal(text_of(&c), "");
    /* It has never been heard of. */
    views[0] = (struct dt_view){.age_s = 61};
    assert_non_null(strstr(text_of(&c), "] rank 0 has not answered at all for 61 s; ranks 1, 2"));
    /* Who has left in good order is not missed; the others then wait for nobody. */
    c = at_work(3);
    views[0].age_s = 1000;
    views[0].beat.flags = DT_HEARTBEAT_HAS_LEFT;
    let_wait(1, 61);
    assert_string_equal(text_of(&c), "");
    let_wait(2, 61);
    c.self = 1;
    assert_non_null(strstr(text_of(&c), "all ranks wait in sum at step 57, section reduce"));
}

/* A dead rank first: others may be stuck because of it. Many are counted. */
TEST(several)
{
    struct dt_diagnosis_case c = at_work(3);
    views[0].beat.main.idle_s = views[1].beat.main.idle_s = 61;
    views[2].age_s = 62;
    text_of(&c);
    const char *dead = strstr(diagnosis.text, "] rank 2 ("),
               *stuck = strstr(diagnosis.text, "; rank 0 (");
    assert_true(dead && stuck && dead < stuck);
    c = at_work(N_MAX);
    for (int r = 0; r < N_MAX; r++)
        views[r].beat.main.idle_s = 61;
    assert_non_null(strstr(text_of(&c), "; and 1016 more; the newest"));
    for (int r = 1; r < N_MAX; r++)
        let_wait(r, 61);
    assert_non_null(
        strstr(text_of(&c), "; ranks 1, 2, 3, 4, 5, 6, 7, 8 and 1015 more wait for it"));
}

TEST(all_wait)
{
    struct dt_diagnosis_case c = at_work(3);
    let_wait(0, 61);
    let_wait(1, 61);
    let_wait(2, 59);
    assert_string_equal(text_of(&c), "");
    let_wait(2, 61);
    assert_non_null(strstr(text_of(&c),
                           "all ranks wait in sum at step 57, section reduce, for 61 s: "
                           "the network?"));
    /* A rank with nothing under way is not waiting. */
    views[1].beat.main = (struct dt_heartbeat_thread){.section = DT_SECTION_NONE};
    assert_string_equal(text_of(&c), "");
}

/* Who knows nothing of other nodes gives those who do time to speak. */
TEST(other_nodes)
{
    struct dt_diagnosis_case c = at_work(4);
    c.has_folder = false;
    c.apart_s = 90;
    for (int r = 0; r < 2; r++) {
        let_wait(r, 89);
        strcpy(views[r].beat.host, "node0");
    }
    for (int r = 2; r < 4; r++)
        views[r] = (struct dt_view){.is_elsewhere = true, .age_s = 1000};
    assert_string_equal(text_of(&c), "");
    let_wait(0, 91);
    assert_non_null(strstr(text_of(&c), "] all ranks of node0 wait in sum at step 57, section "
                                        "reduce, for 91 s: the network? Or a rank hangs on another "
                                        "node; mpirun --mca"));
    c.nodes = "node1 or node2";
    assert_non_null(strstr(text_of(&c), " hangs on node1 or node2; "));
    strcpy(views[2].beat.host, "node1");
    strcpy(views[3].beat.host, "node1");
    assert_non_null(strstr(text_of(&c), " hangs on node1; "));
    /* One that moves is waited for. */
    views[1].beat.main = (struct dt_heartbeat_thread){.limit_s = 60, .idle_s = 1};
    assert_string_equal(text_of(&c), "");
    /* The same with the beats of all: a silent node may be known to the launcher first. */
    c = at_work(2);
    c.apart_s = 90;
    let_wait(0, 89);
    views[1].age_s = 89;
    assert_string_equal(text_of(&c), "");
    views[1].age_s = 91;
    assert_non_null(strstr(text_of(&c), "] rank 1 (node1 pid 101) does not answer ("));
}

/* What the system shows of processes on this node. */
TEST(stopped)
{
    struct dt_diagnosis_case c = at_work(2);
    let_wait(0, 61);
    views[1] = (struct dt_view){.age_s = 61, .process = 'T'};
    views[1].beat.pid = 101;
    strcpy(views[1].beat.host, "node0");
    assert_non_null(strstr(text_of(&c), "] rank 1 (node0 pid 101) is stopped (SIGSTOP, a debugger?)"
                                        " and has not answered at all for 61 s; rank 0 waits"));
    views[1].is_known = true;
    views[1].beat.flags = DT_HEARTBEAT_HAS_LEFT;
    assert_non_null(strstr(text_of(&c), "] rank 1 (node0 pid 101) is stopped (SIGSTOP, a debugger?)"
                                        " since step 0, section none, for 61 s; rank 0 waits"));
}

TEST(lists_of_nodes)
{
    static const char *const cases[][3] = {
        {"node[1-3,7],login", "node2", "node1 or node3 or node7 or login"},
        {"node[1:1-2]@0(2)", "node1.example.org", "node2"},
        {"n[2:9-10]-ib,n[3:7],other@0(4)", "x", "n09-ib or n10-ib or n007 or other"},
        {"gpu[08-10]", "gpu09", "gpu08 or gpu10"},
        {"nodea,nodeb@0(2)", "nodea", "nodeb"},
        {"a[", "", "a0"},
        {"", "node1", ""},
    };
    char out[64];
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        dt_local_ranks_expand(out, sizeof out, cases[i][0], cases[i][1]);
        assert_string_equal(out, cases[i][2]);
    }
}

/* The file of the beats belongs to this user alone, and a link to another one is not followed. */
TEST(path_of_beats)
{
    char path[DT_PATH_MAX];
    struct stat info;
    assert_int_equal(make_test_dir(NULL), 0);
    setenv("PMIX_SERVER_TMPDIR", test_dir, 1);
    setenv("PMIX_NAMESPACE", "job", 1);
    assert_int_equal(dt_local_ranks_path(path, 0, "beats"), DT_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 077, 0);
    assert_int_equal(rename(path, at("other")), 0);
    assert_int_equal(symlink(at("other"), path), 0);
    assert_int_equal(dt_local_ranks_path(path, 0, "beats"), DT_ERR_PERMISSION);
    assert_int_equal(remove_test_dir(NULL), 0);
    assert_int_equal(dt_local_ranks_path(path, 0, "beats"), DT_ERR_PERMISSION);
}

TEST(writer)
{
    struct dt_diagnosis_case c = at_work(2);
    views[0].beat.writer = (struct dt_heartbeat_thread){
        .section = DT_SECTION_SAVE, .step = 40, .limit_s = 600, .idle_s = 600};
    assert_string_equal(text_of(&c), "");
    views[0].beat.writer.idle_s = 601;
    assert_non_null(strstr(text_of(&c), "rank 0 (node0 pid 100) has not moved while it writes a "
                                        "checkpoint since step 40, section save, for 601 s; the"));
}

/* Slots that cannot be read accuse nobody but the file system. */
TEST(blind)
{
    struct dt_diagnosis_case c = at_work(2);
    c.is_blind = true;
    assert_string_equal(text_of(&c), "");
    let_wait(0, 61);
    assert_non_null(strstr(text_of(&c), "rank 0 (node0 pid 100) waits in sum at step 57"));
    assert_non_null(strstr(diagnosis.text, "the file system of the run folder does not answer"));
}

TEST(slack)
{
    struct dt_diagnosis_case c = at_work(3);
    views[1].beat.main.idle_s = 61;
    views[2].beat.main.idle_s = 58.5;
    text_of(&c);
    assert_null(strstr(diagnosis.text, "rank 2"));
    c.slack_s = 2;
    assert_non_null(strstr(text_of(&c), "; rank 2 (node2 pid 102) has not moved"));
}

TEST_MAIN(NULL, NULL)
