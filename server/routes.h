/* What can be asked for, and the small answers. */
#ifndef DG_SERVER_ROUTES_H
#define DG_SERVER_ROUTES_H

#include "calls.h"

/* NULL: there is nothing at this path. With other_method, there is, for another one. */
const dg_route *dg_route_find(const char *method, const char *path, bool *other_method);

#endif
