/* The way in: who may ask for what, and what goes with every answer. */
#ifndef DG_SERVER_ENTRY_H
#define DG_SERVER_ENTRY_H

#include "calls.h"

dg_http_handler dg_entry_handler(dg_server *s);

#endif
