/* The pages of page/live.h for browsers. */
#ifndef DTRAIN_PAGE_SERVE_H
#define DTRAIN_PAGE_SERVE_H

#include <stddef.h>

#include "base/status.h"

/* Listens on this IP address and port (0: any free one), prints the URL, and answers until SIGINT
 * or SIGTERM end the process with code 0. PAGE?events=STATE sends "changed" as server-sent
 * events when its runs are no longer in that state, data-live of the page. On a loopback address,
 * requests to another host's name are refused. Returns only DT_ERR_USAGE if the address is none,
 * DT_ERR_IO or DT_ERR_PERMISSION if it cannot be used. */
dt_status dt_serve(char *const *paths, size_t n, const char *address, int port);

#endif
