/* Identity of this binary. */
#ifndef DTRAIN_BASE_BUILD_H
#define DTRAIN_BASE_BUILD_H

/* The linker's build id of this program in hexadecimal (at most 40 digits), "unknown" if it has
 * none. It does not depend on the path of the binary. */
const char *dt_build_id(void);

/* "0.1.0" or, between releases, "0.1.0+20261126.gcac7205" (scripts/cmake/DtrainVersion.cmake), and
 * the day of the commit, such as "2026-11-26". */
extern const char dt_version[], dt_version_date[];

#endif
