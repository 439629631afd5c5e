/* What the system knows about this process. */
#ifndef DG_SERVER_PROCESS_H
#define DG_SERVER_PROCESS_H

typedef struct dg_process {
    double resident_bytes, virtual_bytes;
    double cpu_seconds;
    double n_open, max_open; /* files */
    double n_thread;
    double started; /* seconds since 1970 */
} dg_process;

/* -1 for what cannot be known. */
void dg_process_read(dg_process *p);

#endif
