/* The name of this node. */
#ifndef DTRAIN_BASE_HOST_H
#define DTRAIN_BASE_HOST_H

enum { DT_HOST_MAX = 256 }; /* bytes of a node's name */

/* Padded with zeros; "unknown host" if there is no name. */
void dt_host_name(char out[DT_HOST_MAX]);

#endif
