/* The report: runs as one HTML page. */
#ifndef DTRAIN_PAGE_PAGE_H
#define DTRAIN_PAGE_PAGE_H

#include <stdio.h>

#include "page/page_run.h"

/* Saves the page as the file `path`; samples.png and confusion.svg of the run folders are part of
 * it. A path that ends with .svg gets a picture of the first two charts instead. Errors as of
 * dt_file_save, and of reading the pictures. */
dt_status dt_page_save(const char *path, const struct dt_run *runs, size_t n);
/* Inside: the curves of all runs in at most `most` common charts. */
dt_status dt_curves_print(FILE *out, const struct dt_run *runs, size_t n, int most);

#endif
