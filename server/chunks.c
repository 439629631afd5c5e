#include "chunks.h"
#include "head.h"

enum { MAX_DIGITS = 15, MAX_EXTRA = 16 << 10 };

/* What may stand between quotes or in the value of a trailer. */
static bool is_text(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 127);
}

/* Behind a size, or behind an extension. */
static dg_chunks_state end_of_size(char byte)
{
    return byte == '\r' ? DG_CHUNKS_SIZE_LF : byte == ';' ? DG_CHUNKS_EXTENSION : DG_CHUNKS_BAD;
}

static dg_chunks_state take_size(dg_chunks *c, char byte)
{
    int digit = dg_hex_digit(byte);
    if (digit >= 0) {
        c->left = c->left << 4 | (uint64_t)digit;
        return ++c->n_digit > MAX_DIGITS ? DG_CHUNKS_BAD : DG_CHUNKS_SIZE;
    }
    return c->n_digit ? end_of_size(byte) : DG_CHUNKS_BAD;
}

static dg_chunks_state take_quoted(dg_chunks_state state, char byte)
{
    if (!is_text(byte) || (unsigned char)byte > '~')
        return DG_CHUNKS_BAD;
    if (state == DG_CHUNKS_EXTENSION_QUOTED && byte == '"')
        return DG_CHUNKS_EXTENSION_END;
    return state == DG_CHUNKS_EXTENSION_QUOTED && byte == '\\' ? DG_CHUNKS_EXTENSION_ESCAPED
                                                               : DG_CHUNKS_EXTENSION_QUOTED;
}

/* ;name, ;name=value, ;name="value", without blanks between them. */
static dg_chunks_state take_extension(dg_chunks_state state, char byte)
{
    bool is_token = dg_head_is_token(&byte, 1);
    switch (state) {
    case DG_CHUNKS_EXTENSION:
        return is_token ? DG_CHUNKS_EXTENSION_NAME : DG_CHUNKS_BAD;
    case DG_CHUNKS_EXTENSION_NAME:
        if (byte == '=')
            return DG_CHUNKS_EXTENSION_VALUE_FIRST;
        return is_token ? state : end_of_size(byte);
    case DG_CHUNKS_EXTENSION_VALUE_FIRST:
        if (byte == '"')
            return DG_CHUNKS_EXTENSION_QUOTED;
        return is_token ? DG_CHUNKS_EXTENSION_VALUE : DG_CHUNKS_BAD;
    case DG_CHUNKS_EXTENSION_VALUE:
        return is_token ? state : end_of_size(byte);
    case DG_CHUNKS_EXTENSION_END:
        return end_of_size(byte);
    default:
        return take_quoted(state, byte);
    }
}

static dg_chunks_state take_trailer_name(char byte)
{
    return byte == ':'                  ? DG_CHUNKS_TRAILER_VALUE
           : dg_head_is_token(&byte, 1) ? DG_CHUNKS_TRAILER_NAME
                                        : DG_CHUNKS_BAD;
}

static dg_chunks_state expect(char byte, char wanted, dg_chunks_state then)
{
    return byte == wanted ? then : DG_CHUNKS_BAD;
}

static bool is_extension(dg_chunks_state s)
{
    return s >= DG_CHUNKS_EXTENSION && s <= DG_CHUNKS_EXTENSION_END;
}

/* What the framing's next byte leads to. */
static dg_chunks_state step(dg_chunks *c, char byte)
{
    if (is_extension(c->state))
        return take_extension(c->state, byte);
    switch (c->state) {
    case DG_CHUNKS_SIZE:
        return take_size(c, byte);
    case DG_CHUNKS_SIZE_LF:
        c->n_digit = 0;
        return expect(byte, '\n', c->left ? DG_CHUNKS_DATA : DG_CHUNKS_TRAILER);
    case DG_CHUNKS_DATA_CR:
        return expect(byte, '\r', DG_CHUNKS_DATA_LF);
    case DG_CHUNKS_DATA_LF:
        return expect(byte, '\n', DG_CHUNKS_SIZE);
    case DG_CHUNKS_TRAILER:
        return byte == '\r'  ? DG_CHUNKS_LAST_LF
               : byte == ':' ? DG_CHUNKS_BAD
                             : take_trailer_name(byte);
    case DG_CHUNKS_TRAILER_NAME:
        return take_trailer_name(byte);
    case DG_CHUNKS_TRAILER_VALUE:
        return byte == '\r' ? DG_CHUNKS_TRAILER_LF : is_text(byte) ? c->state : DG_CHUNKS_BAD;
    case DG_CHUNKS_TRAILER_LF:
        return expect(byte, '\n', DG_CHUNKS_TRAILER);
    case DG_CHUNKS_LAST_LF:
        return expect(byte, '\n', DG_CHUNKS_DONE);
    default:
        return DG_CHUNKS_BAD;
    }
}

/* Extensions and trailers mean nothing to us, so there need not be many of them. */
static bool is_extra(dg_chunks_state s)
{
    return is_extension(s) || s == DG_CHUNKS_TRAILER_NAME || s == DG_CHUNKS_TRAILER_VALUE;
}

size_t dg_chunks_read(dg_chunks *c, const char *data, size_t n, size_t *n_data)
{
    size_t i = 0;
    *n_data = 0;
    while (i < n && c->state != DG_CHUNKS_DATA && c->state < DG_CHUNKS_DONE) {
        c->state = step(c, data[i++]);
        if (is_extra(c->state) && ++c->n_extra > MAX_EXTRA)
            c->state = DG_CHUNKS_BAD;
    }
    if (c->state != DG_CHUNKS_DATA || i == n)
        return i;
    *n_data = c->left < n - i ? (size_t)c->left : n - i;
    c->left -= *n_data;
    if (!c->left)
        c->state = DG_CHUNKS_DATA_CR;
    return i + *n_data;
}
