/* Whether this CPU has the instructions that the program was compiled for (DTRAIN_NATIVE). */
#ifndef DTRAIN_BASE_ISA_H
#define DTRAIN_BASE_ISA_H

#include "base/status.h"

/* DT_ERR_DEVICE instead of SIGILL later, e.g. if the program was built on a newer login node. */
dt_status dt_isa_check(void);

#endif
