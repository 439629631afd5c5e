#include "constraint/formats.h"
#include <string.h>
#include "base/common.h"

#define YEAR      "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"                                  \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"

#define DAYS     "\\d{1,9}D"
#define MONTHS   "\\d{1,9}M(?:" DAYS ")?"
#define YEARS    "\\d{1,9}Y(?:" MONTHS ")?"
#define SECONDS  "\\d{1,9}S"
#define MINUTES  "\\d{1,9}M(?:" SECONDS ")?"
#define HOURS    "\\d{1,9}H(?:" MINUTES ")?"
#define CLOCK    "T(?:" HOURS "|" MINUTES "|" SECONDS ")"
#define DURATION "P(?:(?:" YEARS "|" MONTHS "|" DAYS ")(?:" CLOCK ")?|" CLOCK "|\\d{1,9}W)"

/* Labels have no two hyphens in a row, which are for encoded names; together at most 253. */
#define LABEL       "(?:[A-Za-z0-9]-?){0,29}[A-Za-z0-9]"
#define SHORT_LABEL "(?:[A-Za-z0-9]-?){0,14}[A-Za-z0-9]"
#define HOST        "(?:" LABEL "(?:\\." LABEL "){0,3}|" SHORT_LABEL "(?:\\." SHORT_LABEL "){4,7})"
#define ATOM        "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define EMAIL       ATOM "(?:\\." ATOM "){0,2}@" HOST

#define OCTET     "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4      OCTET "(?:\\." OCTET "){3}"
#define H16       "[0-9A-Fa-f]{1,4}"
#define GROUPS(n) "(?:" H16 "(?::" H16 "){0," #n "})?"
#define IPV6                                                                                       \
    "(?:" H16 "(?::" H16                                                                           \
    "){7}|::" GROUPS(6) "|" H16 "::" GROUPS(5) "|" H16 "(?::" H16 "){1}::" GROUPS(                 \
        4) "|" H16 "(?::" H16                                                                      \
           "){2}::" GROUPS(3) "|" H16 "(?::" H16 "){3}::" GROUPS(                                  \
               2) "|" H16 "(?::" H16 "){4}::" GROUPS(1) "|" H16 "(?::" H16 "){5}::(?:" H16         \
                                                        ")?|" H16 "(?::" H16 "){6}::|(?:" H16      \
                                                        ":){6}" IPV4 "|::(?:ffff:)?" IPV4 ")"

/* Segments and the slashes between them are one run of characters: behind a host it begins with a
 * slash, elsewhere it does not begin with two. How long each part may be is said in its place. */
#define URI_CODE  "%[0-9A-Fa-f]{2}"
#define URI_CHAR  "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" URI_CODE ")"
#define URI_PATH  "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|" URI_CODE ")"
#define URI_QUERY "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|" URI_CODE ")"
#define URI_NAME  "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" URI_CODE ")"
#define URI_AUTHORITY(user, host)                                                                  \
    "//(?:" URI_NAME user "(?::" URI_NAME user ")?@)?(?:" URI_NAME host "|\\[" IPV6                \
    "\\])(?::\\d{1,5})?"
#define URI_OF(user, host, path, query, fragment)                                                  \
    "[A-Za-z][A-Za-z0-9+.-]{0,30}:(?:" URI_AUTHORITY(user, host) "(?:/" URI_PATH path              \
                                                                 ")?|/(?:" URI_CHAR URI_PATH path  \
                                                                 ")?|(?:" URI_CHAR URI_PATH path   \
                                                                 ")?)(?:\\?" URI_QUERY query       \
                                                                 ")?(?:#" URI_QUERY fragment ")?"

typedef struct format {
    const char *name, *regex;
} format;

static const format formats[] = {
    {"date-time", DATE "T" TIME},
    {"date", DATE},
    {"time", TIME},
    {"duration", DURATION},
    {"email", EMAIL},
    {"hostname", HOST},
    {"uri", URI_OF("*", "*", "*", "*", "*")},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
};

/* Fewer than the 2,083 characters that schemas of web addresses often allow. */
static const format limited_uri = {"uri",
                                   URI_OF("{0,20}", "{0,64}", "{0,250}", "{0,200}", "{0,100}")};

static bool is_named(const format *f, const char *name, size_t len)
{
    return strlen(f->name) == len && !memcmp(f->name, name, len);
}

const char *dg_format_regex(const char *name, size_t len, bool limited)
{
    if (limited && is_named(&limited_uri, name, len))
        return limited_uri.regex;
    for (size_t i = 0; i < DG_COUNT(formats); i++)
        if (is_named(&formats[i], name, len))
            return formats[i].regex;
    return NULL;
}

/* A Decimal as pydantic writes it: signs, digits and a point, but not without a digit. */
static const struct {
    const char *pattern, *regex;
} reworded[] = {
    {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "^[+-]?(?:\\d+\\.?\\d*|\\.\\d+)$"},
};

const char *dg_pattern_reworded(const char *pattern, size_t len)
{
    for (size_t i = 0; i < DG_COUNT(reworded); i++)
        if (strlen(reworded[i].pattern) == len && !memcmp(reworded[i].pattern, pattern, len))
            return reworded[i].regex;
    return NULL;
}
