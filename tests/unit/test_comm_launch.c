/* How a rank ends that cannot call MPI: its exit code, and what it tells the mpiexec of MPICH. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dtrain/comm.h"
#include "test.h"

/* What the launcher hears of an exit with 80. */
static void heard(char *text, size_t bytes, const char *local_ranks)
{
    int ends[2], how;
    char fd[16];
    assert_int_equal(pipe(ends), 0);
    snprintf(fd, sizeof fd, "%d", ends[1]);
    setenv("PMI_FD", fd, 1);
    setenv("MPI_LOCALNRANKS", local_ranks, 1);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        dt_comm_exit(80);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 80);
    const ssize_t n = read(ends[0], text, bytes - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
}

TEST(hydra)
{
    char text[64];
    heard(text, sizeof text, "2");
    assert_string_equal(text, "cmd=abort exitcode=80\n");
}

TEST(another_launcher)
{
    char text[64];
    heard(text, sizeof text, "");
    assert_string_equal(text, "");
}

TEST_MAIN(NULL, NULL)
