/* Any JSON as a request with pictures to fetch, by a fetcher that may ask nobody: a picture that is
 * named by an address is refused, and everything else is left as it was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "server/json_body.h"
#include "server/picture_links.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static dg_fetcher *fetcher_without_hosts(void)
{
    static dg_fetcher *f; /* stays NULL in a build without libcurl */
    static const atomic_bool go_on;
    static bool tried;
    if (!tried)
        require(!dg_fetcher_open(&f, (dg_words){0}, &go_on, NULL) || !f);
    tried = true;
    return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const dg_link_limits limits = {.max_bytes = 1 << 20, .max_pictures = 4, .seconds = 1};
    dg_http_error e = {0};
    size_t n_byte;
    json_t *root = dg_json_body((const char *)data, size, &e);
    if (!root)
        return 0;
    json_t *before = json_deep_copy(root);
    if (dg_links_follow(root, fetcher_without_hosts(), &limits, &n_byte, &e))
        require(json_equal(root, before));
    else
        require(e.status >= 400 && e.status < 600 && e.message[0]);
    require(n_byte == 0);
    json_decref(before);
    json_decref(root);
    return 0;
}
