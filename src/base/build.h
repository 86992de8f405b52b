/* Which program this is. */
#ifndef DTRAIN_BASE_BUILD_H
#define DTRAIN_BASE_BUILD_H

/* The linker's build id of this program in hexadecimal (at most 40 digits), "unknown" if it has
 * none. The same for the same binary, whatever its path. */
const char *dt_build_id(void);

#endif
