/* The clock's eye on calls: answers that take too long, streams that were silent. */
#ifndef DG_SERVER_WATCH_H
#define DG_SERVER_WATCH_H

#include "calls.h"

void *dg_watch_main(void *server);

#endif
