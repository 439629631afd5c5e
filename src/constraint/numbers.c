#include "constraint/numbers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* ---- decimal numbers ---- */

/* The exponent behind e or E, held within what makes a difference. */
static long read_exponent(const char *text, size_t len)
{
    long v = 0;
    size_t i = 0;
    bool negative = i < len && text[i] == '-';
    if (i < len && (text[i] == '-' || text[i] == '+'))
        i++;
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++)
        v = v > 100000 ? v : 10 * v + (text[i] - '0');
    return negative ? -v : v;
}

void dg_decimal_parse(dg_decimal *d, const char *text, size_t len)
{
    *d = (dg_decimal){.negative = len && text[0] == '-'};
    size_t end = 0;
    while (end < len && text[end] != 'e' && text[end] != 'E')
        end++;
    /* `place` is that of the next digit: 0 for the one in front of the point */
    long place = end < len ? read_exponent(text + end + 1, len - end - 1) : 0;
    for (size_t i = d->negative; i < end && text[i] != '.'; i++)
        place++;
    size_t n_whole = 0, n_fraction = 0, n_kept = 0;
    for (size_t i = d->negative; i < end; i++) {
        if (text[i] == '.')
            continue;
        char c = text[i];
        place--;
        if (place >= 0 && (n_whole || c != '0')) {
            d->beyond |= n_whole >= DG_NUMBER_DIGITS || place >= DG_NUMBER_DIGITS;
            if (!d->beyond)
                d->whole[n_whole++] = c;
        } else if (place < 0 && c != '0') {
            size_t at = (size_t)(-1 - place);
            if (at >= DG_NUMBER_DIGITS) {
                d->more = true;
                continue;
            }
            while (n_fraction < at)
                d->fraction[n_fraction++] = '0';
            d->fraction[n_fraction++] = c;
            n_kept = n_fraction;
        }
    }
    while (!d->beyond && n_whole && place > 0 && n_whole < DG_NUMBER_DIGITS) {
        d->whole[n_whole++] = '0';
        place--;
    }
    d->beyond |= n_whole && place > 0;
    if (!n_whole)
        d->whole[n_whole++] = '0';
    d->whole[n_whole] = '\0';
    d->fraction[n_kept] = '\0';
    if (!d->beyond && !d->more && !strcmp(d->whole, "0") && !n_kept)
        d->negative = false;
}

static int compare_magnitudes(const dg_decimal *a, const dg_decimal *b)
{
    if (a->beyond || b->beyond)
        return a->beyond - b->beyond;
    size_t n = strlen(a->whole), m = strlen(b->whole);
    if (n != m)
        return n < m ? -1 : 1;
    int c = strcmp(a->whole, b->whole);
    if (!c)
        c = strcmp(a->fraction, b->fraction);
    return c ? c : a->more - b->more;
}

int dg_decimal_compare(const dg_decimal *a, const dg_decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int c = compare_magnitudes(a, b);
    return a->negative ? -c : c;
}

static void tighten(dg_bound *bound, const dg_decimal *at, bool exclusive, int sign)
{
    int c = bound->there ? sign * dg_decimal_compare(at, &bound->at) : 1;
    if (c > 0)
        *bound = (dg_bound){true, exclusive, *at};
    else if (c == 0)
        bound->exclusive |= exclusive;
}

void dg_bound_raise(dg_bound *lower, const dg_decimal *at, bool exclusive)
{
    tighten(lower, at, exclusive, 1);
}

void dg_bound_lower(dg_bound *upper, const dg_decimal *at, bool exclusive)
{
    tighten(upper, at, exclusive, -1);
}

/* ---- digits ---- */

/* Numbers without a sign from `low` to `high`. */
typedef struct band {
    dg_syntax *syntax;
    bool integer, exponent;
    uint32_t multiple;
    char low[DG_NUMBER_DIGITS + 1], low_fraction[DG_NUMBER_DIGITS + 1];
    char high[DG_NUMBER_DIGITS + 1], high_fraction[DG_NUMBER_DIGITS + 1];
    bool low_exclusive, high_exclusive, high_there;
    /* [DG_NUMBER_DIGITS + 1][multiple], 0: not made yet, else node + 1 */
    dg_node *remainder, *open;
} band;

static dg_node digits(dg_syntax *s, int lo, int hi)
{
    return lo > hi ? DG_NODE_NEVER : dg_syntax_range(s, '0' + (unsigned)lo, '0' + (unsigned)hi);
}

static int digit_at(const char *text, size_t i)
{
    return i < strlen(text) ? text[i] - '0' : 0;
}

/* `n` digits more of a multiple, when those so far leave this remainder. */
static dg_node remainder_node(band *b, size_t n, uint32_t rest)
{
    if (!n)
        return rest ? DG_NODE_NEVER : DG_NODE_EMPTY;
    dg_node *known = &b->remainder[n * b->multiple + rest];
    if (*known)
        return *known - 1;
    dg_node way[10];
    for (uint32_t d = 0; d < 10; d++)
        way[d] = dg_syntax_pair(b->syntax, digits(b->syntax, (int)d, (int)d),
                                remainder_node(b, n - 1, (rest * 10 + d) % b->multiple));
    dg_node id = dg_syntax_choice(b->syntax, way, DG_COUNT(way));
    *known = id + 1;
    return id;
}

/* Whether a number whose fraction has ended after i digits is inside; at_low, at_high: it is equal
 * to that bound as far as it goes. */
static bool may_stop(const band *b, size_t i, bool at_low, bool at_high)
{
    if (at_low && (i < strlen(b->low_fraction) || b->low_exclusive))
        return false;
    return !at_high || i < strlen(b->high_fraction) || !b->high_exclusive;
}

/* What may follow i >= 0 digits behind the point, which the first digit brings with it. */
static dg_node fraction_node(const band *b, size_t i, bool at_low, bool at_high)
{
    dg_syntax *s = b->syntax;
    dg_node stop = may_stop(b, i, at_low, at_high) ? DG_NODE_EMPTY : DG_NODE_NEVER;
    if (i == DG_NUMBER_DIGITS)
        return stop;
    dg_node point = i ? DG_NODE_EMPTY : dg_syntax_word(s, ".");
    if (!at_low && !at_high) {
        uint32_t most = (uint32_t)(DG_NUMBER_DIGITS - i);
        dg_node more = dg_syntax_repeat(s, digits(s, 0, 9), i ? 0 : 1, most);
        return i ? more : dg_syntax_either(s, DG_NODE_EMPTY, dg_syntax_pair(s, point, more));
    }
    int lo = at_low ? digit_at(b->low_fraction, i) : 0;
    int hi = at_high ? digit_at(b->high_fraction, i) : 9;
    if (lo > hi)
        return stop;
    dg_node way[3] = {DG_NODE_NEVER, DG_NODE_NEVER, DG_NODE_NEVER};
    way[0] =
        dg_syntax_pair(s, digits(s, lo, lo), fraction_node(b, i + 1, at_low, at_high && lo == hi));
    if (hi > lo)
        way[1] = dg_syntax_pair(s, digits(s, hi, hi), fraction_node(b, i + 1, false, at_high));
    if (hi > lo + 1)
        way[2] =
            dg_syntax_pair(s, digits(s, lo + 1, hi - 1), fraction_node(b, i + 1, false, false));
    dg_node more = dg_syntax_pair(s, point, dg_syntax_choice(s, way, DG_COUNT(way)));
    return dg_syntax_either(s, stop, more);
}

static dg_node after_whole(const band *b, bool at_low, bool at_high)
{
    if (b->integer)
        return DG_NODE_EMPTY;
    dg_node fraction = fraction_node(b, 0, at_low, at_high);
    if (!b->exponent)
        return fraction;
    dg_syntax *s = b->syntax;
    const dg_node parts[] = {
        dg_syntax_either(s, dg_syntax_word(s, "e"), dg_syntax_word(s, "E")),
        dg_syntax_repeat(s, dg_syntax_either(s, dg_syntax_word(s, "+"), dg_syntax_word(s, "-")), 0,
                         1),
        dg_syntax_repeat(s, digits(s, 0, 9), 1, 3)};
    return dg_syntax_pair(s, fraction,
                          dg_syntax_repeat(s, dg_syntax_sequence(s, parts, DG_COUNT(parts)), 0, 1));
}

/* The digits from the i-th of n on, then what follows them. */
static dg_node whole_node(band *b, size_t i, size_t n, bool at_low, bool at_high, uint32_t rest)
{
    dg_syntax *s = b->syntax;
    if (!at_low && !at_high && i) {
        if (b->multiple)
            return remainder_node(b, n - i, rest);
        return dg_syntax_pair(
            s, dg_syntax_repeat(s, digits(s, 0, 9), (uint32_t)(n - i), (uint32_t)(n - i)),
            after_whole(b, false, false));
    }
    if (i == n)
        return b->multiple && rest ? DG_NODE_NEVER : after_whole(b, at_low, at_high);
    int lo = at_low ? b->low[i] - '0' : n > 1 && !i;
    int hi = at_high ? b->high[i] - '0' : 9;
    dg_node way[10];
    size_t n_way = 0;
    for (int d = lo, end; d <= hi; d = end) {
        bool low = at_low && d == lo, high = at_high && d == hi;
        end = d + 1;
        while (!low && !high && !b->multiple && end < hi + !at_high)
            end++; /* all alike */
        uint32_t next = b->multiple ? (rest * 10 + (uint32_t)d) % b->multiple : 0;
        way[n_way++] =
            dg_syntax_pair(s, digits(s, d, end - 1), whole_node(b, i + 1, n, low, high, next));
    }
    return dg_syntax_choice(s, way, n_way);
}

/* Up to n digits more of a multiple, at least n - spread. */
static dg_node open_node(band *b, size_t n, size_t spread, uint32_t rest)
{
    dg_node stop = n <= spread && !rest ? DG_NODE_EMPTY : DG_NODE_NEVER;
    if (!n)
        return stop;
    dg_node *known = &b->open[n * b->multiple + rest];
    if (*known)
        return *known - 1;
    dg_node way[11] = {stop};
    for (uint32_t d = 0; d < 10; d++)
        way[d + 1] = dg_syntax_pair(b->syntax, digits(b->syntax, (int)d, (int)d),
                                    open_node(b, n - 1, spread, (rest * 10 + d) % b->multiple));
    dg_node id = dg_syntax_choice(b->syntax, way, DG_COUNT(way));
    *known = id + 1;
    return id;
}

/* Lengths at which no bound is near, from `first` to `last` digits, together. */
static dg_node free_lengths(band *b, size_t first, size_t last)
{
    dg_syntax *s = b->syntax;
    if (b->multiple) {
        dg_node way[10] = {first == 1 ? dg_syntax_word(s, "0") : DG_NODE_NEVER};
        for (uint32_t d = 1; d < 10; d++)
            way[d] = dg_syntax_pair(s, digits(s, (int)d, (int)d),
                                    open_node(b, last - 1, last - first, d % b->multiple));
        return dg_syntax_choice(s, way, DG_COUNT(way));
    }
    const dg_node parts[] = {
        digits(s, 1, 9),
        dg_syntax_repeat(s, digits(s, 0, 9), (uint32_t)first - 1, (uint32_t)last - 1),
        after_whole(b, false, false)};
    dg_node zero = first > 1
                       ? DG_NODE_NEVER
                       : dg_syntax_pair(s, dg_syntax_word(s, "0"), after_whole(b, false, false));
    return dg_syntax_either(s, zero, dg_syntax_sequence(s, parts, DG_COUNT(parts)));
}

static dg_node band_node(band *b)
{
    size_t low = strlen(b->low), high = b->high_there ? strlen(b->high) : DG_NUMBER_DIGITS + 1;
    if (low > high)
        return DG_NODE_NEVER;
    if (low == high)
        return strcmp(b->low, b->high) > 0 ? DG_NODE_NEVER : whole_node(b, 0, low, true, true, 0);
    dg_node way[3] = {whole_node(b, 0, low, true, false, 0), DG_NODE_NEVER, DG_NODE_NEVER};
    if (high > low + 1)
        way[1] = free_lengths(b, low + 1, high - 1);
    if (b->high_there)
        way[2] = whole_node(b, 0, high, false, true, 0);
    return dg_syntax_choice(b->syntax, way, DG_COUNT(way));
}

/* ---- bounds ---- */

static uint64_t whole_of(const char *text)
{
    return strtoull(text, NULL, 10);
}

/* Integers have bounds that are integers and belong to them. False: nothing is between them. */
static bool round_inward(band *b)
{
    uint64_t low = whole_of(b->low) + (b->low_exclusive || b->low_fraction[0]);
    uint64_t high = b->high_there ? whole_of(b->high) : 0;
    if (b->high_there && b->high_exclusive && !b->high_fraction[0] && high-- == 0)
        return false;
    if (low > 999999999999999)
        return false;
    b->low_exclusive = b->high_exclusive = false;
    b->low_fraction[0] = b->high_fraction[0] = '\0';
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)low);
    memcpy(b->low, text, strlen(text) + 1);
    if (b->high_there) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)high);
        memcpy(b->high, text, strlen(text) + 1);
    }
    return true;
}

/* Numbers on one side of zero, without their sign. `near` is the bound next to zero, which may be
 * on the other side or not there. */
static dg_node side(dg_syntax *s, const dg_number_rule *rule, bool negative)
{
    const dg_bound *near = negative ? &rule->upper : &rule->lower;
    const dg_bound *far = negative ? &rule->lower : &rule->upper;
    if (far->there && far->at.negative != negative)
        return DG_NODE_NEVER;
    band b = {.syntax = s,
              .integer = rule->integer || rule->multiple,
              .exponent = !rule->lower.there && !rule->upper.there,
              .multiple = rule->multiple,
              .low = "0",
              .low_exclusive = negative}; /* no -0 */
    if (near->there && near->at.negative == negative) {
        const dg_decimal *d = &near->at;
        bool zero = !strcmp(d->whole, "0") && !d->fraction[0];
        if (d->beyond)
            return DG_NODE_NEVER;
        memcpy(b.low, d->whole, sizeof b.low);
        memcpy(b.low_fraction, d->fraction, sizeof b.low_fraction);
        b.low_exclusive = near->exclusive || d->more || (negative && zero);
    }
    if (far->there && !far->at.beyond) {
        b.high_there = true;
        memcpy(b.high, far->at.whole, sizeof b.high);
        memcpy(b.high_fraction, far->at.fraction, sizeof b.high_fraction);
        b.high_exclusive = far->exclusive && !far->at.more;
    }
    if (b.integer && !round_inward(&b))
        return DG_NODE_NEVER;
    if (b.multiple) {
        size_t n = (DG_NUMBER_DIGITS + 1) * (size_t)b.multiple;
        b.remainder = dg_calloc(2 * n, sizeof *b.remainder);
        if (!b.remainder) {
            dg_syntax_fail(s, DGEMMA_E_NOMEM, "out of memory");
            return DG_NODE_NEVER;
        }
        b.open = b.remainder + n;
    }
    dg_node id = band_node(&b);
    dg_free(b.remainder);
    return id;
}

dg_node dg_number_node(dg_syntax *s, const dg_number_rule *rule)
{
    dg_node minus = dg_syntax_pair(s, dg_syntax_word(s, "-"), side(s, rule, true));
    return dg_syntax_either(s, side(s, rule, false), minus);
}
