/* Which keywords of a schema a value violates. */
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "server/schema_check.h"
#include "suites.h"

/* ' stands for ". */
static json_t *parse(const char *text)
{
    dg_buf b;
    dg_buf_init(&b, 1 << 24);
    ck_assert(dg_buf_puts(&b, text));
    for (size_t i = 0; i < b.len; i++)
        if (b.data[i] == '\'')
            b.data[i] = '"';
    json_t *v = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
    ck_assert_msg(v != NULL, "%s", text);
    dg_buf_clear(&b);
    return v;
}

#define SOME   "{'properties':{'a':{'type':'integer'}},'dependentRequired':{'a':['b']}}"
#define EITHER "{'oneOf':[{'minimum':0},{'maximum':10}]}"
#define IF     "{'if':{'required':['a']},'then':{'required':['b']},'else':{'maxProperties':1}}"
#define TREE   "{'$defs':{'t':{'items':{'$ref':'#/$defs/t'},'uniqueItems':true}},'$ref':'#/$defs/t'}"

/* What is violated, one behind the other. */
static const struct {
    const char *schema, *value, *violated;
} cases[] = {
    {"true", "1", ""},
    {"{}", "1", ""},
    {"{'uniqueItems':true}", "[1,2,'1']", ""},
    {"{'uniqueItems':true}", "[1,2,1]", "uniqueItems at #"},
    {"{'uniqueItems':true}", "[1,1.0]", "uniqueItems at #"},
    {"{'uniqueItems':false}", "[1,1]", ""},
    {"{'uniqueItems':true}", "{'a':1}", ""},
    {"{'properties':{'a/b~':{'uniqueItems':true}}}", "{'a/b~':[{},{}]}",
     "uniqueItems at #/properties/a~1b~0"},
    {"{'not':{'type':'string'}}", "'x'", "not at #"},
    {"{'not':{'type':'string'}}", "1", ""},
    {"{'not':{'pattern':'x'}}", "'x'", ""}, /* who knows */
    {"{'not':{'pattern':'x'}}", "1", "not at #"},
    {"{'not':{'not':{'pattern':'x'}}}", "'x'", ""},
    {"{'anyOf':[{'const':1},{'const':2}]}", "3", "anyOf at #"},
    {"{'anyOf':[{'const':1},{'format':'date'}]}", "'3'", ""},
    {EITHER, "5", "oneOf at #"},
    {EITHER, "-1", ""},
    {EITHER, "11", ""},
    {"{'oneOf':[{'pattern':'x'},{'type':'string'}]}", "'x'", ""},
    {"{'allOf':[{'minimum':3},{'maximum':1}]}", "2", "minimum at #/allOf/0, maximum at #/allOf/1"},
    {IF, "{'a':1}", "if at #"},
    {IF, "{'a':1,'b':1}", ""},
    {IF, "{'c':1,'d':1}", "if at #"},
    {IF, "{'c':1}", ""},
    {"{'if':{'pattern':'x'},'then':false,'else':false}", "'x'", ""},
    {SOME, "{'a':1}", "dependentRequired at #"},
    {SOME, "{'a':1,'b':2}", ""},
    {SOME, "{'a':'x','b':2}", "type at #/properties/a"},
    {"{'dependentSchemas':{'a':{'required':['b']}}}", "{'a':1}", "dependentSchemas at #"},
    {"{'dependencies':{'a':['b'],'c':{'minProperties':3}}}", "{'c':1,'d':1}", "dependencies at #"},
    {"{'contains':{'type':'string'}}", "[1,2]", "contains at #"},
    {"{'contains':{'type':'string'}}", "[1,'x']", ""},
    {"{'contains':{'const':1},'minContains':2}", "[1,2]", "contains at #"},
    {"{'contains':{'const':1},'maxContains':1}", "[1,1]", "contains at #"},
    {"{'contains':{'const':1},'minContains':0}", "[2]", ""},
    {"{'propertyNames':{'maxLength':2}}", "{'abc':1}", "propertyNames at #"},
    {"{'propertyNames':{'maxLength':2}}", "{'ab':1}", ""},
    {"{'multipleOf':0.1}", "0.3", ""},
    {"{'multipleOf':0.1}", "0.35", "multipleOf at #"},
    {"{'multipleOf':3}", "'4'", ""},
    {"{'minimum':2,'maximum':4}", "5", "maximum at #"},
    {"{'minimum':2,'maximum':4}", "1", "minimum at #"},
    {"{'exclusiveMinimum':2,'exclusiveMaximum':4}", "2", "exclusiveMinimum at #"},
    {"{'exclusiveMinimum':2,'exclusiveMaximum':4}", "4", "exclusiveMaximum at #"},
    {"{'exclusiveMinimum':true,'minimum':2}", "2", ""},
    {"{'minLength':2,'maxLength':2}", "'é\xe2\x82\xac'", ""},
    {"{'minLength':2}", "'é'", "minLength at #"},
    {"{'maxLength':1}", "'ab'", "maxLength at #"},
    {"{'maxLength':1}", "[1,2]", ""},
    {"{'minItems':1,'maxItems':2}", "[]", "minItems at #"},
    {"{'minItems':1,'maxItems':2}", "[1,2,3]", "maxItems at #"},
    {"{'minProperties':1,'maxProperties':2}", "{}", "minProperties at #"},
    {"{'minProperties':1,'maxProperties':2}", "{'a':1,'b':1,'c':1}", "maxProperties at #"},
    {"{'type':['string','integer']}", "1.5", "type at #"},
    {"{'type':['string','integer']}", "1.0", ""},
    {"{'type':'number'}", "null", "type at #"},
    {"{'type':'strange'}", "null", "type at #"},
    {"{'enum':[1,{'a':[2]}]}", "{'a':[2]}", ""},
    {"{'enum':[1,{'a':[2]}]}", "2", "enum at #"},
    {"{'required':['a']}", "{'b':1}", "required at #"},
    {"{'required':['a']}", "7", ""},
    {"{'properties':{'a':{}},'additionalProperties':false}", "{'a':1,'b':1}",
     "additionalProperties at #"},
    {"{'patternProperties':{'^b':{}},'additionalProperties':false}", "{'a':1,'b':1}", ""},
    {"{'additionalProperties':{'type':'null'}}", "{'a':1}", "type at #/additionalProperties"},
    {"{'prefixItems':[{'const':1}],'items':{'const':2}}", "[1,2,2]", ""},
    {"{'prefixItems':[{'const':1}],'items':{'const':2}}", "[2,1]",
     "const at #/prefixItems/0, const at #/items"},
    {"{'items':[{'const':1}],'additionalItems':false}", "[1,2]", "additionalItems at #"},
    {"{'items':false}", "[1]", "items at #"},
    {"{'items':{'const':1}}", "[2,2,2]", "const at #/items"}, /* told once */
    {TREE, "[[1,2],[2,2]]", "uniqueItems at #/$defs/t"},
    {TREE, "[[1,2],[2,1]]", ""},
    {"{'$ref':'#'}", "1", ""}, /* without an end */
    {"{'$ref':'#/nowhere'}", "1", ""},
    {"{'$defs':{'x':false},'$ref':'#/$defs/x'}", "1", "$ref at #"},
    {"{'allOf':[true,false]}", "1", "allOf at #"},
    {"{'prefixItems':[false]}", "[1]", "prefixItems at #"},
    {"{'properties':{'a':false}}", "{'a':1}", "properties at #"},
    {"{'$ref':'https://example.com/x'}", "1", ""},
    {"{'unevaluatedProperties':false}", "{'a':1}", ""},
    {"{'enum':7,'required':7,'type':7,'not':7,'minimum':'x','anyOf':7}", "'x'",
     "enum at #, type at #, not at #, anyOf at #"}, /* which no constraint is made of */
};

static void check(const char *schema, const char *value, const char *base, const char *want)
{
    json_t *list = json_array(), *s = parse(schema), *v = parse(value), *line;
    dg_buf told;
    size_t i;
    dg_buf_init(&told, 1 << 16);
    ck_assert(dg_buf_puts(&told, ""));
    dg_schema_check(&list, s, v, base);
    json_array_foreach(list, i, line)
    {
        ck_assert(dg_buf_puts(&told, i ? ", " : "") && dg_buf_puts(&told, json_string_value(line)));
    }
    ck_assert(dg_buf_append(&told, "", 1));
    ck_assert_msg(!strcmp(told.data, want), "%s of %s: \"%s\", not \"%s\"", value, schema,
                  told.data, want);
    dg_buf_clear(&told);
    json_decref(list);
    json_decref(s);
    json_decref(v);
}

START_TEST(what_is_violated)
{
    check(cases[_i].schema, cases[_i].value, "", cases[_i].violated);
}
END_TEST

START_TEST(pointers_begin_where_the_schema_is)
{
    check(TREE, "[1,1]", "/0/function/parameters",
          "uniqueItems at #/0/function/parameters/$defs/t");
    check("{'items':{'not':{}}}", "[1]", "/2/x", "not at #/2/x/items");
}
END_TEST

/* Branches that double at every level, each with many words that mean nothing, and lists without
 * end: it gives up, and says nothing. */
START_TEST(it_takes_no_time)
{
    dg_buf b;
    char notes[4096] = "";
    dg_buf_init(&b, 1 << 24);
    for (int i = 0; i < 300; i++)
        snprintf(notes + strlen(notes), sizeof notes - strlen(notes), ",'n%d':0", i);
    ck_assert(dg_buf_puts(&b, "{'$defs':{'d0':{'const':1}"));
    for (int i = 1; i < 60; i++) {
        char line[128];
        snprintf(line, sizeof line,
                 ",'d%d':{'anyOf':[{'$ref':'#/$defs/d%d'},{'$ref':'#/$defs/d%d'}]", i, i - 1,
                 i - 1);
        ck_assert(dg_buf_puts(&b, line) && dg_buf_puts(&b, notes) && dg_buf_puts(&b, "}"));
    }
    ck_assert(dg_buf_puts(&b, "},'$ref':'#/$defs/d59'}") && dg_buf_append(&b, "", 1));
    check(b.data, "2", "", "");
    b.len = 0;
    ck_assert(dg_buf_puts(&b, "[0"));
    for (int i = 1; i < 5000; i++) {
        char line[16];
        snprintf(line, sizeof line, ",%d", i);
        ck_assert(dg_buf_puts(&b, line));
    }
    ck_assert(dg_buf_puts(&b, ",0]") && dg_buf_append(&b, "", 1));
    check("{'uniqueItems':true}", b.data, "", "");
    dg_buf_clear(&b);
}
END_TEST

Suite *schema_check_suite(void)
{
    Suite *s = suite_create("schema_check");
    TCase *t = tcase_create("schema_check");
    tcase_add_loop_test(t, what_is_violated, 0, DG_COUNT(cases));
    tcase_add_test(t, pointers_begin_where_the_schema_is);
    tcase_add_test(t, it_takes_no_time);
    suite_add_tcase(s, t);
    return s;
}
