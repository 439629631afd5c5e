/* How strings and names of members are written: as JSON has them, or as Gemma's calls do, where
 * text stands as it is between special tokens and names stand bare. */
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "base/utf8.h"
#include "constraint/tool_calls.h"
#include "constraint/schema_claims.h"

dg_spelling dg_notation_spelling(bool call)
{
    return call ? DG_SPELL_CALL : DG_SPELL_JSON;
}

dg_node dg_notation_quote(dg_syntax *s, bool call)
{
    return call ? dg_syntax_symbol(s, -1, DG_CALL_MARK_QUOTE, strlen(DG_CALL_MARK_QUOTE))
                : dg_syntax_word(s, "\"");
}

dg_node dg_notation_between(dg_syntax *s, bool call, dg_node inside)
{
    dg_node quote = dg_notation_quote(s, call);
    const dg_node parts[] = {quote, inside, quote};
    return dg_syntax_sequence(s, parts, DG_COUNT(parts));
}

dg_node dg_notation_string(dg_syntax *s, bool call)
{
    return dg_notation_between(s, call, dg_points_text(s, dg_notation_spelling(call)));
}

void dg_notation_add_key_points(dg_points *p)
{
    static const char others[] = ".@-";
    dg_points_add_class(p, 'w');
    for (const char *c = others; *c; c++)
        dg_points_add(p, (unsigned char)*c, (unsigned char)*c);
}

dg_node dg_notation_any_key(dg_syntax *s, bool call)
{
    if (!call)
        return dg_notation_string(s, false);
    dg_points points = {0};
    dg_notation_add_key_points(&points);
    dg_node key = dg_syntax_repeat(s, dg_points_node(s, &points, DG_SPELL_CALL), 1, DG_UNBOUNDED);
    dg_points_clear(&points);
    return key;
}

dg_node dg_schema_quoted(dg_schema *c, dg_text text)
{
    if (c->options.call)
        return dg_notation_between(c->syntax, true,
                                   dg_syntax_literal(c->syntax, text.data, text.len));
    dg_buf out;
    dg_buf_init(&out, 6 * text.len + 2);
    dg_json string = {.kind = DG_JSON_STRING, .text = text};
    bool ok = dg_json_write(&out, &string);
    dg_node id = ok ? dg_syntax_literal(c->syntax, out.data, out.len) : DG_NODE_NEVER;
    if (!ok)
        dg_schema_out_of_memory(c);
    dg_buf_clear(&out);
    return id;
}

bool dg_notation_stands_bare(dg_text name)
{
    dg_points points = {0};
    dg_notation_add_key_points(&points);
    bool ok = name.len > 0;
    for (size_t i = 0; i < name.len && ok; i++)
        ok = (unsigned char)name.data[i] >= 0x80 ||
             dg_points_has(&points, (unsigned char)name.data[i]);
    dg_points_clear(&points);
    return ok;
}

dg_node dg_schema_key(dg_schema *c, dg_text name)
{
    return c->options.call && dg_notation_stands_bare(name)
               ? dg_syntax_literal(c->syntax, name.data, name.len)
               : dg_schema_quoted(c, name);
}
