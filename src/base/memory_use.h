/* Memory of this process as the system counts it. */
#ifndef DG_BASE_MEMORY_USE_H
#define DG_BASE_MEMORY_USE_H

#include <stddef.h>

typedef struct dg_memory_use {
    size_t resident, peak; /* bytes, files that are mapped and touched included; 0: not known */
} dg_memory_use;

dg_memory_use dg_memory_now(void);

/* The peak begins again at what is resident now, where the system can do that. */
void dg_memory_forget_peak(void);

#endif
