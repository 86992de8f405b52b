/* The report: runs as one HTML page. */
#ifndef DTRAIN_PAGE_PAGE_H
#define DTRAIN_PAGE_PAGE_H

#include <stdio.h>

#include "page/page_run.h"

/* Saves the page as the file `path`; samples.png and confusion.svg of the run folders are part of
 * it. Errors as of dt_file_save, and those of reading the pictures. */
dt_status dt_page_save(const char *path, const struct dt_run *runs, size_t n);
/* Inside: the section with the curves of all runs in common charts. */
dt_status dt_curves_print(FILE *out, const struct dt_run *runs, size_t n);

#endif
