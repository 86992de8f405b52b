/* Identity of this binary. */
#ifndef DTRAIN_BASE_BUILD_H
#define DTRAIN_BASE_BUILD_H

/* The linker's build id of this program in hexadecimal (at most 40 digits), "unknown" if it has
 * none. It does not depend on the path of the binary. */
const char *dt_build_id(void);

#endif
