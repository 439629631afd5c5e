/* The page at "/": a chat that shows the canvas settle. Its files are in ui/; tools/embed_page.sh
 * makes one document of them, and what is declared here. */
#ifndef DG_SERVER_PAGE_H
#define DG_SERVER_PAGE_H

#include <stddef.h>

extern const unsigned char dg_page[];
extern const size_t dg_page_size;
extern const char dg_page_etag[];   /* of this document; quoted, as HTTP wants it */
extern const char dg_page_policy[]; /* Content-Security-Policy: its own style and script, by hash */

typedef struct dg_call dg_call;

void dg_page_send(dg_call *c);

#endif
