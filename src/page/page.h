/* The report: runs as one HTML page. */
#ifndef DTRAIN_PAGE_PAGE_H
#define DTRAIN_PAGE_PAGE_H

#include "page/run.h"

/* Saves the page as the file `path`; samples.png and confusion.svg of the run folders are part of
 * it. Errors as of dt_file_save, and those of reading the pictures. */
dt_status dt_page_save(const char *path, const struct dt_run *runs, size_t n);

#endif
