/* The name of this node. */
#ifndef DTRAIN_BASE_HOST_H
#define DTRAIN_BASE_HOST_H

enum { DT_HOST_MAX = 256 }; /* bytes of the name of a node */

/* Filled up with zeros; "unknown host" where there is none. */
void dt_host_name(char out[DT_HOST_MAX]);

#endif
