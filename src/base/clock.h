#ifndef DG_BASE_CLOCK_H
#define DG_BASE_CLOCK_H

/* Seconds on a clock that never goes back. */
double dg_clock_now(void);

#endif
