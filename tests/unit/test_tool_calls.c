/* Turns with tool calls as a language: which of them are let be, and that every one of them is read
 * by the parser of calls into arguments that the tool's schema lets be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/utf8.h"
#include "dgemma_tools.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/judge.h"
#include "text/call_syntax.h"
#include "text/json_tree.h"

#define OPEN  "<|tool_call>call:"
#define CLOSE "<tool_call|>"
#define Q     "<|\"|>"

static dgemma_status make(dgemma_constraint **out, const char *tools, dgemma_tool_choice choice,
                          const char *only, bool single, dgemma_error *err)
{
    dgemma_constraint_options opt = {.kind = DGEMMA_CONSTRAINT_TOOLS,
                                     .text = tools,
                                     .text_len = strlen(tools),
                                     .choices = &only,
                                     .n_choices = only != NULL,
                                     .tool_choice = choice,
                                     .single_tool_call = single};
    return dgemma_constraint_create(out, &opt, err);
}

static dgemma_constraint *must_make(const char *tools, dgemma_tool_choice choice, const char *only,
                                    bool single)
{
    dgemma_constraint *c;
    dgemma_error err = {0};
    ck_assert_msg(!make(&c, tools, choice, only, single, &err), "%s: %s", tools, err.msg);
    return c;
}

/* ---- turns ---- */

static const char two_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"at\": {\"type\": \"string\"}}, \"required\": [\"at\"]}}}, "
    "{\"name\": \"stop\"}]";

START_TEST(turns_by_tool_choice)
{
    static const struct {
        dgemma_tool_choice choice;
        const char *only;
        bool single;
        const char *text;
        dgemma_verdict verdict;
    } list[] = {
        {DGEMMA_TOOLS_AUTO, NULL, false, "", DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_AUTO, NULL, false, "Hello \"you\" {", DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_AUTO, NULL, false, "Let me see. " OPEN "stop{}" CLOSE, DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_AUTO, NULL, false, OPEN "stop{}" CLOSE OPEN "stop{}" CLOSE, DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_AUTO, NULL, false, OPEN "stop{}" CLOSE "so", DGEMMA_REJECTED},
        {DGEMMA_TOOLS_AUTO, NULL, false, OPEN "sto", DGEMMA_PREFIX},
        {DGEMMA_TOOLS_AUTO, NULL, false, OPEN "run", DGEMMA_REJECTED},
        {DGEMMA_TOOLS_AUTO, NULL, true, OPEN "stop{}" CLOSE, DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_AUTO, NULL, true, OPEN "stop{}" CLOSE OPEN, DGEMMA_REJECTED},
        {DGEMMA_TOOLS_AUTO, "look", false, OPEN "stop", DGEMMA_REJECTED},
        {DGEMMA_TOOLS_NONE, NULL, false, "Hello", DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_REQUIRED, NULL, false, "", DGEMMA_PREFIX},
        {DGEMMA_TOOLS_REQUIRED, NULL, false, "Hello", DGEMMA_REJECTED},
        {DGEMMA_TOOLS_REQUIRED, NULL, false, OPEN "look{at:" Q "it" Q "}" CLOSE OPEN "stop{}" CLOSE,
         DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_REQUIRED, NULL, true, OPEN "stop{}" CLOSE OPEN, DGEMMA_REJECTED},
        {DGEMMA_TOOLS_NAMED, "look", false, OPEN "stop", DGEMMA_REJECTED},
        {DGEMMA_TOOLS_NAMED, "look", false, OPEN "look{at:" Q "a\nb\"" Q "}" CLOSE,
         DGEMMA_ACCEPTED},
        {DGEMMA_TOOLS_NAMED, "look", false, OPEN "look{}", DGEMMA_REJECTED},
        {DGEMMA_TOOLS_NAMED, "look", false, OPEN "look{at:\"it\"}", DGEMMA_REJECTED},
        {DGEMMA_TOOLS_NAMED, "look", false, OPEN "look{at: ", DGEMMA_REJECTED},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        dgemma_constraint *c = must_make(two_tools, list[i].choice, list[i].only, list[i].single);
        ck_assert_msg(dg_test_judge(c, list[i].text) == list[i].verdict, "case %zu: %s", i,
                      list[i].text);
        dgemma_constraint_free(c);
    }
    /* where none is wanted the mark of a call is text like any other, and no special token */
    dgemma_match m;
    dgemma_error err = {0};
    dgemma_constraint *c = must_make(two_tools, DGEMMA_TOOLS_NONE, NULL, false);
    ck_assert(!dgemma_constraint_check(c, "a", 1, &m, &err) && m.n_tokens == 0);
    dgemma_constraint_free(c);
}
END_TEST

START_TEST(an_answer_or_calls)
{
    static const char schema[] = "{\"properties\": {\"a\": {\"type\": \"integer\"}}}";
    dgemma_constraint_options answer = {
        .kind = DGEMMA_CONSTRAINT_JSON_SCHEMA, .text = schema, .text_len = strlen(schema)};
    dgemma_constraint_options opt = {.kind = DGEMMA_CONSTRAINT_TOOLS,
                                     .text = two_tools,
                                     .text_len = strlen(two_tools),
                                     .answer = &answer};
    dgemma_constraint *c;
    dgemma_error err = {0};
    ck_assert(!dgemma_constraint_create(&c, &opt, &err));
    ck_assert(dg_test_judge(c, "{\"a\": 1}") == DGEMMA_ACCEPTED);
    ck_assert(dg_test_judge(c, OPEN "stop{}" CLOSE OPEN "stop{}" CLOSE) == DGEMMA_ACCEPTED);
    ck_assert(dg_test_judge(c, "Hello") == DGEMMA_REJECTED &&
              dg_test_judge(c, "") == DGEMMA_PREFIX);
    ck_assert(dg_test_judge(c, "{\"a\": 1}" OPEN) == DGEMMA_REJECTED);
    dgemma_constraint_free(c);
    opt.tool_choice = DGEMMA_TOOLS_REQUIRED;
    ck_assert(!dgemma_constraint_create(&c, &opt, &err));
    ck_assert(dg_test_judge(c, "{") == DGEMMA_REJECTED &&
              dg_test_judge(c, OPEN "stop{}" CLOSE) == DGEMMA_ACCEPTED);
    dgemma_constraint_free(c);
    answer.kind = DGEMMA_CONSTRAINT_GRAMMAR;
    ck_assert(dgemma_constraint_create(&c, &opt, &err) == DGEMMA_E_UNSUPPORTED);
    answer.kind = DGEMMA_CONSTRAINT_REGEX;
    answer.text = NULL;
    ck_assert(dgemma_constraint_create(&c, &opt, &err) == DGEMMA_E_ARG);
}
END_TEST

START_TEST(thirty_two_calls_at_most)
{
    char text[40 * 64] = "";
    dgemma_constraint *c = must_make(two_tools, DGEMMA_TOOLS_REQUIRED, "stop", false);
    for (int i = 0; i < 32; i++)
        strcat(text, OPEN "stop{}" CLOSE);
    ck_assert(dg_test_judge(c, text) == DGEMMA_ACCEPTED);
    strcat(text, OPEN);
    ck_assert(dg_test_judge(c, text) == DGEMMA_REJECTED);
    dgemma_constraint_free(c);
}
END_TEST

/* ---- arguments ---- */

/* A tool "f" with these parameters, in braces. */
static dgemma_constraint *tool_with(const char *parameters, bool strict)
{
    char tools[4000];
    snprintf(tools, sizeof tools,
             "[{\"function\": {\"name\": \"f\", \"strict\": %s, "
             "\"parameters\": %s}}]",
             strict ? "true" : "false", parameters);
    return must_make(tools, DGEMMA_TOOLS_REQUIRED, NULL, true);
}

START_TEST(arguments_by_schema)
{
    static const struct {
        const char *parameters;
        const char *good, *bad; /* separated by tabs */
    } list[] = {
        {"{\"properties\": {\"b\": {\"type\": \"integer\"}, \"A\": {\"type\": \"boolean\"}, \"c\": "
         "{\"type\": \"null\"}}}",
         "{}\t{A:true,b:1}\t{A:false,b:0,c:null}\t{b:2,c:null}",
         "{b:1,A:true}\t{A:1}\t{b:1.5}\t{d:1}\t{A:true,}\t{A: true}"},
        {"{\"properties\": {\"s\": {\"enum\": [\"a,b\", \"\", 3, null]}}}",
         "{s:" Q "a,b" Q "}\t{s:" Q Q "}\t{s:3}\t{s:null}", "{s:" Q "a" Q "}\t{s:a,b}"},
        {"{\"properties\": {\"s\": {\"const\": {\"k\": [\"v\", 1]}}}}", "{s:{k:[" Q "v" Q ",1]}}",
         "{s:{k:[" Q "v" Q "]}}"},
        {"{\"properties\": {\"a b\": {\"type\": \"integer\"}, \"x:y\": {}, \"\xc3\xa9\": {}}, "
         "\"required\": [\"a b\"]}",
         "{" Q "a b" Q ":1}\t{" Q "a b" Q ":1," Q "x:y" Q ":true,\xc3\xa9:null}", "{a b:1}"},
        {"{\"properties\": {\"s\": {\"type\": \"string\", \"pattern\": \"^[a-z]{2,3}$\"}, \"d\": "
         "{\"format\": \"date\", \"type\": \"string\"}}}",
         "{s:" Q "abc" Q "}\t{d:" Q "2024-02-29" Q "}", "{s:" Q "a" Q "}\t{d:" Q "soon" Q "}"},
        {"{\"properties\": {\"s\": {\"type\": \"string\", \"maxLength\": 2}}}",
         "{s:" Q "\xc3\xa9\xe2\x82\xac" Q "}\t{s:" Q "\\\"" Q "}", "{s:" Q "abc" Q "}"},
        {"{\"properties\": {\"l\": {\"type\": \"array\", \"items\": {\"type\": \"object\", "
         "\"properties\": {\"y\": {}, \"x\": {\"type\": \"number\"}}}, \"minItems\": 1}}}",
         "{l:[{x:1.5,y:[]}]}\t{l:[{},{y:" Q "z" Q "}]}", "{l:[]}\t{l:[{y:1,x:1}]}"},
        {"{\"properties\": {\"b\": {}}, \"additionalProperties\": {\"type\": \"integer\"}}",
         "{b:1,c:2}\t{aa:1}\t{b:" Q Q ",bb:1}", "{c:true}\t{b:1,b:2}\t{:1}\t{c d:1}"},
        {"{\"patternProperties\": {\"^x\": {\"type\": \"integer\"}}}", "{" Q "x y" Q ":1}",
         "{xy:1}"},
        {"{\"type\": [\"object\", \"string\"]}", "{}\t{a:{b-c:[1,{}]}}", Q Q},
        {"{\"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"next\": {\"$ref\": "
         "\"#/$defs/n\"}}}}, \"$ref\": "
         "\"#/$defs/n\"}",
         "{next:{next:{}}}", "{next:1}"},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        dgemma_constraint *c = tool_with(list[i].parameters, true);
        for (int good = 0; good < 2; good++) {
            char copy[1000], whole[1200], *next = copy;
            strcpy(copy, good ? list[i].good : list[i].bad);
            for (char *text; (text = strsep(&next, "\t")) != NULL;) {
                snprintf(whole, sizeof whole, OPEN "f%s" CLOSE, text);
                ck_assert_msg((dg_test_judge(c, whole) == DGEMMA_ACCEPTED) == (good == 1), "%s: %s",
                              list[i].parameters, text);
            }
        }
        dgemma_constraint_free(c);
    }
}
END_TEST

START_TEST(what_schemas_cannot_say_is_left_out)
{
    static const struct {
        const char *parameters, *ignored, *good, *bad;
    } list[] = {
        {"{\"properties\": {\"l\": {\"type\": \"array\", \"uniqueItems\": true}}}",
         "uniqueItems at #/0/function/parameters/properties/l\n", "{l:[1,1]}", "{l:1}"},
        {"{\"$ref\": \"http://elsewhere/\"}", "parameters at #/0/function\n",
         "{any:" Q "x" Q ",l:[{}]}", "{any"},
        {"{\"properties\": {\"a\": {\"type\": \"word\"}}}", "parameters at #/0/function\n", "{a:1}",
         "[]"},
        {"{\"type\": \"string\"}", "parameters at #/0/function\n", "{a:1}", Q Q},
        {"{\"properties\": {\"a\": {\"pattern\": \"[ab]*a[ab]{24}\", \"type\": \"string\"}}}",
         "parameters at #/0/function\n", "{a:1}", "1"},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        char text[200];
        dgemma_constraint *c = tool_with(list[i].parameters, false);
        ck_assert_str_eq(dgemma_constraint_ignored(c), list[i].ignored);
        snprintf(text, sizeof text, OPEN "f%s" CLOSE, list[i].good);
        ck_assert_msg(dg_test_judge(c, text) == DGEMMA_ACCEPTED, "%s", text);
        snprintf(text, sizeof text, OPEN "f%s" CLOSE, list[i].bad);
        ck_assert_msg(dg_test_judge(c, text) == DGEMMA_REJECTED, "%s", text);
        dgemma_constraint_free(c);
    }
}
END_TEST

START_TEST(tools_that_are_refused)
{
    static const struct {
        const char *tools;
        dgemma_tool_choice choice;
        dgemma_status status;
        const char *says;
    } list[] = {
        {"[{\"name\": \"f\", \"strict\": true, \"parameters\": {\"properties\": {\"l\": "
         "{\"uniqueItems\": true}}}}]",
         DGEMMA_TOOLS_AUTO, DGEMMA_E_UNSUPPORTED,
         "f: \"uniqueItems\" at #/0/parameters/properties/l is not supported"},
        {"[{\"name\": \"a\"}, {\"function\": {\"name\": \"f\", \"strict\": true, \"parameters\": "
         "{\"if\": {}}}}]",
         DGEMMA_TOOLS_REQUIRED, DGEMMA_E_UNSUPPORTED,
         "f: \"if\" at #/1/function/parameters is not supported"},
        {"[{\"name\": \"f\", \"strict\": true, \"parameters\": {\"type\": \"string\"}}]",
         DGEMMA_TOOLS_AUTO, DGEMMA_E_ARG, "f: nothing satisfies"},
        {"[{\"name\": \"f\", \"strict\": true, \"parameters\": {\"properties\": {\"a\": {\"type\": "
         "\"string\", \"pattern\": \"[ab]*a[ab]{24}\"}}}}]",
         DGEMMA_TOOLS_AUTO, DGEMMA_E_LIMIT, "too many ways"},
        {"{}", DGEMMA_TOOLS_AUTO, DGEMMA_E_ARG, "wanted a list"},
        {"[{}]", DGEMMA_TOOLS_AUTO, DGEMMA_E_ARG, "tools[0]: not a function with a name"},
        {"[", DGEMMA_TOOLS_NONE, DGEMMA_E_ARG, "tools"},
        {"[]", DGEMMA_TOOLS_REQUIRED, DGEMMA_E_ARG, "no tool can be called"},
        {"[{\"name\": \"two words\"}]", DGEMMA_TOOLS_REQUIRED, DGEMMA_E_ARG,
         "no tool can be called"},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        dgemma_constraint *c = NULL;
        dgemma_error err = {0};
        dgemma_status st = make(&c, list[i].tools, list[i].choice, NULL, false, &err);
        ck_assert_msg(st == list[i].status && strstr(err.msg, list[i].says), "%s: %d %s",
                      list[i].tools, st, err.msg);
    }
    for (int choice = 0; choice < 4; choice++) { /* of none, nobody asks for names */
        dgemma_constraint *c = NULL;
        dgemma_error err = {0};
        dgemma_status st = make(&c, two_tools, (dgemma_tool_choice)choice, "sto", false, &err);
        ck_assert_int_eq(st, choice == DGEMMA_TOOLS_NONE ? DGEMMA_OK : DGEMMA_E_ARG);
        ck_assert(!st || strstr(err.msg, "none is called \"sto\""));
        dgemma_constraint_free(c);
    }
    dgemma_match m;
    dgemma_error err = {0};
    dgemma_constraint *c = must_make("[{\"name\": \"two words\"}]", DGEMMA_TOOLS_AUTO, NULL, false);
    ck_assert(!dgemma_constraint_check(c, "Hello", 5, &m, &err) && m.could_end && !m.n_tokens);
    dgemma_constraint_free(c);
}
END_TEST

/* ---- a validator of its own, for what the schemas below have ---- */

static const dg_json *follow(const dg_json *root, dg_text ref)
{
    char name[32];
    size_t from = strlen("#/$defs/");
    ck_assert(ref.len > from && ref.len - from < sizeof name);
    memcpy(name, ref.data + from, ref.len - from);
    name[ref.len - from] = '\0';
    return dg_json_get(dg_json_get(root, "$defs"), name);
}

static bool is_type(const dg_json *v, dg_text type)
{
    static const char *const names[] = {"null",   "boolean", "boolean", "integer",
                                        "number", "string",  "array",   "object"};
    return dg_text_is(type, names[v->kind]) ||
           (v->kind == DG_JSON_INT && dg_text_is(type, "number"));
}

static size_t n_points(dg_text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; n++)
        i += dg_utf8_decode(text.data + i, text.len - i, NULL);
    return n;
}

/* Text or a number, as it stands. */
static bool same(const dg_json *a, const dg_json *b)
{
    return a->kind == b->kind && (a->kind == DG_JSON_STRING ? dg_text_equal(a->text, b->text)
                                                            : dg_text_equal(a->source, b->source));
}

static double limit_of(const dg_json *schema, const char *keyword, double otherwise)
{
    const dg_json *v = dg_json_get(schema, keyword);
    return v ? strtod(v->source.data, NULL) : otherwise;
}

static bool in_limits(const dg_json *schema, const char *min, const char *max, double x)
{
    return x >= limit_of(schema, min, -1e300) && x <= limit_of(schema, max, 1e300);
}

static bool holds(const dg_json *root, const dg_json *schema, const dg_json *v);

static bool members_hold(const dg_json *root, const dg_json *schema, const dg_json *v)
{
    const dg_json *properties = dg_json_get(schema, "properties"), *more;
    const dg_json *required = dg_json_get(schema, "required");
    more = dg_json_get(schema, "additionalProperties");
    for (const dg_json *r = required ? required->child : NULL; r; r = r->next) {
        bool there = false;
        for (const dg_json *m = v->child; m; m = m->next)
            there |= dg_text_equal(m->key, r->text);
        if (!there)
            return false;
    }
    for (const dg_json *m = v->child; m; m = m->next) {
        const dg_json *own = properties ? properties->child : NULL;
        while (own && !dg_text_equal(own->key, m->key))
            own = own->next;
        own = own ? own : more;
        if (own && (own->kind == DG_JSON_FALSE || !holds(root, own, m)))
            return false;
    }
    return true;
}

static bool holds(const dg_json *root, const dg_json *schema, const dg_json *v)
{
    const dg_json *ref = dg_json_get(schema, "$ref"), *type = dg_json_get(schema, "type");
    const dg_json *any = dg_json_get(schema, "anyOf"), *all = dg_json_get(schema, "enum");
    const dg_json *items = dg_json_get(schema, "items");
    bool ok = !any && !all;
    for (const dg_json *b = any ? any->child : NULL; b; b = b->next)
        ok |= holds(root, b, v);
    for (const dg_json *b = all ? all->child : NULL; b; b = b->next)
        ok |= same(b, v);
    if (!ok || (ref && !holds(root, follow(root, ref->text), v)) ||
        (type && !is_type(v, type->text)))
        return false;
    if (v->kind == DG_JSON_OBJECT)
        return members_hold(root, schema, v);
    if (v->kind == DG_JSON_STRING)
        return in_limits(schema, "minLength", "maxLength", (double)n_points(v->text));
    if (v->kind == DG_JSON_INT || v->kind == DG_JSON_REAL)
        return in_limits(schema, "minimum", "maximum", strtod(v->source.data, NULL));
    for (const dg_json *m = v->child; m && items; m = m->next)
        if (!holds(root, items, m))
            return false;
    return v->kind != DG_JSON_ARRAY ||
           in_limits(schema, "minItems", "maxItems", (double)v->n_child);
}

/* ---- what is drawn is read, and holds ---- */

static const char drawn_tools[] =
    "[{\"function\": {\"name\": \"book.flight\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"to\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 12}, "
    "\"Seats\": "
    "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 9}, \"class\": {\"enum\": [\"first\", "
    "\"sec,ond\", 3, null]}, \"legs\": {\"type\": \"array\", \"items\": {\"$ref\": "
    "\"#/$defs/leg\"}, \"minItems\": 1, \"maxItems\": 3}}, \"required\": [\"to\", \"legs\"], "
    "\"$defs\": {\"leg\": {\"type\": \"object\", \"properties\": {\"km\": {\"type\": \"number\", "
    "\"minimum\": -2.5, \"maximum\": 1000}, \"via me\": {\"anyOf\": [{\"$ref\": \"#/$defs/leg\"}, "
    "{\"type\": \"null\"}]}}, \"required\": [\"km\"]}}}}}, "
    "{\"name\": \"set\", \"parameters\": {\"type\": \"object\", \"additionalProperties\": "
    "{\"type\": "
    "\"boolean\"}}}, "
    "{\"name\": \"note\", \"parameters\": {\"type\": \"object\"}}, {\"name\": \"stop\"}]";

/* Takes one call off the text: its name, and its arguments as a tree. Text in front is skipped. */
static bool next_call(const char **at, const char *end, dg_buf *name, dg_buf *arguments)
{
    const char open[] = "<|tool_call>", close[] = "<tool_call|>", quote[] = "<|\"|>";
    const char *from = memmem(*at, (size_t)(end - *at), open, strlen(open));
    if (!from)
        return false;
    from += strlen(open);
    const char *to = memmem(from, (size_t)(end - from), close, strlen(close));
    ck_assert(to);
    *at = to + strlen(close);
    char *body = malloc((size_t)(to - from) + 1);
    size_t n = 0;
    while (from < to) {
        bool is_quote = (size_t)(to - from) >= strlen(quote) && !memcmp(from, quote, strlen(quote));
        body[n++] = is_quote ? DG_CALL_QUOTE : *from;
        from += is_quote ? strlen(quote) : 1;
    }
    dg_text text = {body, n};
    ck_assert(!dg_call_read(&text, true, name, arguments));
    ck_assert(text.len == 0);
    free(body);
    return true;
}

static void check_call(const dg_json *tools, const dg_buf *name, const dg_buf *arguments)
{
    dg_json_tree tree;
    dgemma_error err = {0};
    ck_assert_msg(!dg_json_read(&tree, arguments->data, arguments->len, "arguments", &err),
                  "%s: %s", arguments->data, err.msg);
    const dg_json *found = NULL, *of = NULL;
    for (const dg_json *t = tools->child; t; t = t->next) {
        const dg_json *function = dg_json_get(t, "function");
        of = function ? function : t;
        if (dg_text_is(dg_json_get(of, "name")->text, name->data))
            found = of;
    }
    ck_assert_msg(found != NULL, "%s", name->data);
    const dg_json *parameters = dg_json_get(found, "parameters");
    ck_assert(tree.root->kind == DG_JSON_OBJECT);
    ck_assert_msg(parameters ? holds(parameters, parameters, tree.root) : !tree.root->child, "%s%s",
                  name->data, arguments->data);
    dg_json_tree_clear(&tree);
}

START_TEST(what_is_drawn_is_read_and_holds)
{
    dg_json_tree tools;
    dgemma_error err = {0};
    dg_buf name, arguments;
    size_t n_call = 0, n_turn[2] = {0};
    ck_assert(!dg_json_read(&tools, drawn_tools, strlen(drawn_tools), "tools", &err));
    dg_buf_init(&name, 1 << 16);
    dg_buf_init(&arguments, 1 << 20);
    for (int required = 0; required < 2; required++) {
        dgemma_constraint *c = must_make(
            drawn_tools, required ? DGEMMA_TOOLS_REQUIRED : DGEMMA_TOOLS_AUTO, NULL, false);
        for (uint32_t i = 0; i < 300; i++) {
            char *text;
            size_t len, before = n_call;
            ck_assert(!dgemma_constraint_random(c, 5, i, i % 400, &text, &len, &err));
            ck_assert_msg(dg_test_judge(c, text) == DGEMMA_ACCEPTED || memchr(text, '\0', len),
                          "%s", text);
            for (const char *at = text; next_call(&at, text + len, &name, &arguments); n_call++)
                check_call(tools.root, &name, &arguments);
            n_turn[required] += n_call > before;
            ck_assert(!required || n_call > before);
            dgemma_free(text);
        }
        dgemma_constraint_free(c);
    }
    ck_assert_msg(n_call > 400 && n_turn[0] > 20 && n_turn[1] == 300, "%zu calls, in %zu and %zu",
                  n_call, n_turn[0], n_turn[1]);
    dg_buf_clear(&name);
    dg_buf_clear(&arguments);
    dg_json_tree_clear(&tools);
}
END_TEST

START_TEST(memory_may_run_out_anywhere)
{
    for (long n = 1; n < 100000; n++) {
        dgemma_constraint *c = NULL;
        dgemma_error err = {0};
        char *text = NULL;
        size_t len;
        dg_test_fail_alloc_at(n);
        dgemma_status st = make(&c, drawn_tools, DGEMMA_TOOLS_REQUIRED, NULL, false, &err);
        if (!st)
            st = dgemma_constraint_random(c, 1, 0, 20, &text, &len, &err);
        bool reached = dg_test_alloc_done();
        bool loose = c && dgemma_constraint_ignored(c)[0];
        dgemma_free(text);
        dgemma_constraint_free(c);
        if (!reached) {
            ck_assert_msg(!st, "%s", err.msg);
            break;
        }
        ck_assert_msg((st != DGEMMA_OK || text) && !loose, "allocation %ld", n);
    }
}
END_TEST

Suite *calls_language_suite(void)
{
    Suite *s = suite_create("calls_language");
    TCase *c = tcase_create("calls_language");
    tcase_add_test(c, turns_by_tool_choice);
    tcase_add_test(c, an_answer_or_calls);
    tcase_add_test(c, thirty_two_calls_at_most);
    tcase_add_test(c, arguments_by_schema);
    tcase_add_test(c, what_schemas_cannot_say_is_left_out);
    tcase_add_test(c, tools_that_are_refused);
    tcase_add_test(c, what_is_drawn_is_read_and_holds);
    tcase_add_test(c, memory_may_run_out_anywhere);
    suite_add_tcase(s, c);
    return s;
}
