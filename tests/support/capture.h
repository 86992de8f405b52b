/* What a test writes to standard output or error in the meantime. */
#ifndef DTRAIN_TESTS_CAPTURE_H
#define DTRAIN_TESTS_CAPTURE_H

#include <stdio.h>
#include <unistd.h>

#include "test.h"

struct capture {
    FILE *stream, *file;
    int saved;
};

static inline struct capture capture_begin(FILE *stream)
{
    struct capture c = {stream, tmpfile(), dup(fileno(stream))};
    assert_true(c.file && c.saved >= 0);
    fflush(stream);
    assert_true(dup2(fileno(c.file), fileno(stream)) >= 0);
    return c;
}

/* Gives what has come, cut to `bytes`. */
static inline void capture_end(struct capture *c, char *text, size_t bytes)
{
    fflush(c->stream);
    assert_true(dup2(c->saved, fileno(c->stream)) >= 0);
    close(c->saved);
    rewind(c->file);
    text[fread(text, 1, bytes - 1, c->file)] = '\0';
    fclose(c->file);
}

#endif
