/* One HTML page in one file: nothing from the network, readable as XML too, without its script, in
 * dark and light, on a phone and in print. */
#ifndef DTRAIN_PAGE_HTML_H
#define DTRAIN_PAGE_HTML_H

#include <stdio.h>

#include "base/status.h"

enum { DT_HTML_COLOURS = 8 }; /* var(--c0) ..., distinguishable with any colour vision */

/* Everything before and after the contents of <main>, with report.css and report.js, which listens
 * to events if the zeros of data-live are replaced. */
void dt_html_begin(FILE *out, const char *title);
void dt_html_end(FILE *out, const char *footer);
/* Any text, also with bytes that are not UTF-8, as contents of an element or attribute. */
void dt_html_text(FILE *out, const char *text);
/* JSON for the script, as an element with that id, which may be NULL. */
void dt_html_data(FILE *out, const char *id, const char *json);
/* `before`, then the file as <img>, inside the page. DT_ERR_DATA above 16 MiB and for what is no
 * PNG, JPEG or plain SVG, as its type `mime` says; a link is DT_ERR_PERMISSION. */
dt_status dt_html_image(FILE *out, const char *before, const char *path, const char *mime,
                        const char *what);

#endif
