/* Questions as they come over HTTP, in both forms: what is read of them, and what is refused. */
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "base/common.h"
#include "server/decisions.h"
#include "server/systemone.h"
#include "suites.h"

enum { MAX_IMAGES = 2, MAX_BODY = 1 << 16 };

/* Reads a body in which ' stands for "; b is to be cleared. */
static bool read_body(const dg_decide_wire *wire, const char *body, dg_decide_body *b,
                      dg_http_error *e)
{
    static char text[MAX_BODY];
    size_t n = strlen(body);
    ck_assert_uint_lt(n, sizeof text);
    for (size_t i = 0; i <= n; i++)
        text[i] = (char)(body[i] == '\'' ? '"' : body[i]);
    *b = (dg_decide_body){
        .root = json_loads(text, 0, NULL),
        .options = dgemma_decide_defaults(),
        .max_images = MAX_IMAGES,
    };
    ck_assert_msg(b->root != NULL, "%s", text);
    return wire->read(b, e);
}

#define ONE           "'questions':{'a':{'type':'noul'}}"
#define STATE(fields) &dg_systemone, "{'state':'s'," ONE "," fields "}"
#define ASK(question) &dg_systemone, "{'state':'s','questions':{'a':" question "}}"
#define YES           "'questions':[{'type':'predicate','instructions':'x'}]"
#define INPUT(fields) &dg_decisions, "{'input':'s'," YES "," fields "}"
#define PUT(question) &dg_decisions, "{'input':'s','questions':[" question "]}"
#define PICK(choices) PUT("{'type':'choice','instructions':'x','choices':[" choices "]}")
#define RATE(levels)  PUT("{'type':'score','instructions':'x','levels':[" levels "]}")
#define PARTS(parts)  &dg_decisions, "{'input':[{'role':'user','content':[" parts "]}]," YES "}"
#define PICTURE       "{'type':'input_image','image_url':'data:image/png;base64,AAAA'}"
#define TEN(x)        x "," x "," x "," x "," x "," x "," x "," x "," x "," x

/* status 0: it is taken. */
static const struct {
    const dg_decide_wire *wire;
    const char *body;
    int status;
    const char *param;
} verdicts[] = {
    {STATE("'samples':1"), 0, NULL},
    {STATE("'samples':32"), 0, NULL},
    {STATE("'samples':33"), 400, "samples"},
    {STATE("'samples':0"), 400, "samples"},
    {STATE("'samples':'auto'"), 0, NULL},
    {STATE("'samples':'some'"), 400, "samples"},
    {STATE("'samples':1.5"), 400, "samples"},
    {STATE("'steps':8"), 0, NULL},
    {STATE("'steps':9"), 400, "steps"},
    {STATE("'steps':0"), 400, "steps"},
    {STATE("'think':4096"), 0, NULL},
    {STATE("'think':4097"), 400, "think"},
    {STATE("'think':-1"), 400, "think"},
    {STATE("'permute':255"), 0, NULL},
    {STATE("'permute':256"), 400, "permute"},
    {STATE("'permute':0"), 400, "permute"},
    {STATE("'mode':'independent'"), 0, NULL},
    {STATE("'mode':'packed'"), 0, NULL},
    {STATE("'mode':'alone'"), 400, "mode"},
    {STATE("'mode':7"), 400, "mode"},
    {STATE("'seed':-1"), 0, NULL},
    {STATE("'seed':1.5"), 400, "seed"},
    {STATE("'temperature':2"), 0, NULL},
    {STATE("'temperature':'hot'"), 400, "temperature"},
    {STATE("'diagnostics':null"), 0, NULL},
    {STATE("'diagnostics':1"), 400, "diagnostics"},
    {STATE("'assets':[]"), 400, "assets"},
    {STATE("'images':['x','y']"), 0, NULL},
    {STATE("'images':['x','y','z']"), 400, "images"},
    {STATE("'images':[7]"), 400, "images"},
    {STATE("'images':'x'"), 400, "images"},
    {&dg_systemone, "{'state':{'a':1}," ONE "}", 0, NULL},
    {&dg_systemone, "{'state':[]," ONE "}", 0, NULL},
    {&dg_systemone, "{'state':7," ONE "}", 422, "state"},
    {&dg_systemone, "{" ONE "}", 422, "state"},
    {&dg_systemone, "{'state':'s'}", 422, "questions"},
    {&dg_systemone, "{'state':'s','questions':{}}", 422, "questions"},
    {&dg_systemone, "{'state':'s','questions':[1]}", 422, "questions"},
    {ASK("7"), 422, "questions/a/type"},
    {ASK("{}"), 422, "questions/a/type"},
    {ASK("{'type':'box'}"), 422, "questions/a/type"},
    {ASK("{'type':'noul','criteria':{'true':'x'}}"), 0, NULL},
    {ASK("{'type':'noul','criteria':['x']}"), 422, "questions/a/criteria"},
    {ASK("{'type':'choice'}"), 422, "questions/a/criteria"},
    {ASK("{'type':'choice','criteria':['x']}"), 422, "questions/a/criteria"},
    {ASK("{'type':'choice','criteria':{}}"), 400, "questions"},
    {ASK("{'type':'choice','criteria':{'x':null}}"), 0, NULL},
    {ASK("{'type':'score'}"), 422, "questions/a/criteria"},
    {ASK("{'type':'score','criteria':{'x':1}}"), 422, "questions/a/criteria"},
    {ASK("{'type':'score','criteria':[]}"), 400, "questions"},
    {ASK("{'type':'score','criteria':['x',null]}"), 422, "questions/a/criteria"},
    {ASK("{'type':'score','criteria':[" TEN("'x'") "]}"), 0, NULL},
    {ASK("{'type':'score','criteria':[" TEN("'x'") ",'x']}"), 400, "questions"},

    {INPUT("'samples':2"), 0, NULL},
    {INPUT("'images':[]"), 400, "images"},
    {&dg_decisions, "{" YES "}", 400, "input"},
    {&dg_decisions, "{'input':''," YES "}", 0, NULL},
    {&dg_decisions, "{'input':[]," YES "}", 400, "input"},
    {&dg_decisions, "{'input':'s'}", 400, "questions"},
    {&dg_decisions, "{'input':'s','questions':[]}", 400, "questions"},
    {&dg_decisions, "{'input':'s','questions':{}}", 400, "questions"},
    {PARTS("{'type':'input_text','text':'a'}," PICTURE "," PICTURE), 0, NULL},
    {PARTS(PICTURE "," PICTURE "," PICTURE), 400, "input"},
    {PUT("7"), 400, "questions[0].instructions"},
    {PUT("{'type':'predicate'}"), 400, "questions[0].instructions"},
    {PUT("{'type':'predicate','instructions':[{'type':'input_text','text':'x'}]}"), 0, NULL},
    {PUT("{'type':'predicate','instructions':'x','name':7}"), 400, "questions[0].name"},
    {PUT("{'type':'predicate','instructions':'x','name':null}"), 0, NULL},
    {PUT("{'type':'box','instructions':'x'}"), 400, "questions[0].type"},
    {PICK(""), 400, "questions[0].choices"},
    {PICK("{'value':'a'}"), 0, NULL},
    {PICK("{'value':true},{'value':'true'}"), 0, NULL},
    {PICK("{'value':'a'},{'value':'b'},{'value':'a'}"), 400, "questions[0].choices"},
    {PICK("{'value':7}"), 400, "questions[0].choices"},
    {PICK("'a'"), 400, "questions[0].choices"},
    {PICK("{'value':'a','description':7}"), 400, "questions[0].choices"},
    {RATE("{'label':'a'},{'label':'a'}"), 0, NULL},
    {RATE("{'label':true}"), 400, "questions[0].levels"},
    {RATE(TEN("{'label':'a'}")), 0, NULL},
    {RATE(TEN("{'label':'a'}") ",{'label':'a'}"), 400, "questions[0].levels"},
};

START_TEST(what_is_taken_and_what_is_not)
{
    dg_decide_body b;
    dg_http_error e = {0};
    bool ok = read_body(verdicts[_i].wire, verdicts[_i].body, &b, &e);
    ck_assert_msg(ok == !verdicts[_i].status, "%s: %s", verdicts[_i].body, e.message);
    if (!ok) {
        ck_assert_int_eq(e.status, verdicts[_i].status);
        ck_assert_str_eq(e.param, verdicts[_i].param);
    }
    dg_decide_body_clear(&b);
}
END_TEST

/* As many questions and options as there may be, and one more. */
START_TEST(limits_are_reached)
{
    static const struct {
        const char *head, *one, *tail;
        int most;
    } lists[] = {
        {"{'input':'s','questions':[", "{'type':'predicate','instructions':'x'}", "]}",
         DGEMMA_MAX_QUESTIONS},
        {"{'state':'s','questions':{", "'%d':{'type':'noul'}", "}}", DGEMMA_MAX_QUESTIONS},
        {"{'input':'s','questions':[{'type':'choice','instructions':'x','choices':[",
         "{'value':'%d'}", "]}]}", DGEMMA_MAX_OPTIONS},
        {"{'state':'s','questions':{'a':{'type':'choice','criteria':{", "'%d':null", "}}}}",
         DGEMMA_MAX_OPTIONS},
    };
    for (int more = 0; more < 2; more++) {
        dg_buf text;
        dg_decide_body b;
        dg_http_error e = {0};
        dg_buf_init(&text, MAX_BODY);
        ck_assert(dg_buf_puts(&text, lists[_i].head));
        for (int k = 0; k < lists[_i].most + more; k++) {
            const char *number = strstr(lists[_i].one, "%d");
            size_t before = number ? (size_t)(number - lists[_i].one) : strlen(lists[_i].one);
            ck_assert(dg_buf_puts(&text, k ? "," : "") &&
                      dg_buf_append(&text, lists[_i].one, before));
            char digits[16];
            snprintf(digits, sizeof digits, "%d", k);
            ck_assert(!number || (dg_buf_puts(&text, digits) && dg_buf_puts(&text, number + 2)));
        }
        ck_assert(dg_buf_puts(&text, lists[_i].tail) && dg_buf_append(&text, "", 1));
        ck_assert_int_eq(read_body(_i % 2 ? &dg_systemone : &dg_decisions, text.data, &b, &e),
                         !more);
        ck_assert_int_eq(e.status, more ? 400 : 0);
        dg_decide_body_clear(&b);
        dg_buf_clear(&text);
    }
}
END_TEST

START_TEST(what_is_read_is_what_was_said)
{
    dg_decide_body b;
    dg_http_error e = {0};
    ck_assert(read_body(
        &dg_systemone,
        "{'state':{'k':[1]},'seed':7,'samples':'auto','steps':2,'think':3,'permute':4,"
        "'mode':'independent','temperature':1.5,'diagnostics':true,'questions':{"
        "'sure':{'type':'noul','criteria':{'true':'yea','false':[2]}},"
        "'which':{'type':'choice','instructions':'Pick.','criteria':{'x':'first','y':null}},"
        "'much':{'type':'score','criteria':['low',5]}}}",
        &b, &e));
    const dgemma_decide_options *o = &b.options;
    const dgemma_question *q = o->questions;
    ck_assert_str_eq(o->state, "{\"k\":[1]}");
    ck_assert(o->seed == 7 && o->samples == 0 && o->steps == 2 && o->think == 3 && o->orders == 4);
    ck_assert(o->independent && o->temperature == 1.5 && b.diagnostics && o->n_questions == 3);
    ck_assert(q[0].kind == DGEMMA_QUESTION_YES_NO && q[0].n_options == 2);
    ck_assert_str_eq(q[0].text, "sure"); /* a question may be its name alone */
    ck_assert_str_eq(q[0].options[0].description, "yea");
    ck_assert_str_eq(q[0].options[1].description, "[2]");
    ck_assert(q[1].kind == DGEMMA_QUESTION_CHOICE && q[1].n_options == 2);
    ck_assert_str_eq(q[1].text, "Pick.");
    ck_assert_str_eq(q[1].options[0].name, "x");
    ck_assert_str_eq(q[1].options[0].description, "first");
    ck_assert_str_eq(q[1].options[1].name, "y");
    ck_assert_ptr_null(q[1].options[1].description);
    ck_assert(q[2].kind == DGEMMA_QUESTION_SCORE && q[2].n_options == 2);
    ck_assert_str_eq(q[2].options[0].name, "low");
    ck_assert_str_eq(q[2].options[1].name, "5");
    dg_decide_body_clear(&b);

    ck_assert(read_body(&dg_decisions,
                        "{'input':'s','mode':'packed','samples':5,'questions':["
                        "{'type':'predicate','instructions':'Is it?'},"
                        "{'type':'choice','instructions':[{'type':'input_text','text':'Pick'},"
                        "{'type':'input_text','text':'one.'}],"
                        "'choices':[{'value':false,'description':'nay'},{'value':'b'}]},"
                        "{'type':'score','instructions':'x','levels':[{'label':'low'}]}]}",
                        &b, &e));
    q = b.options.questions;
    ck_assert_str_eq(b.options.state, "s");
    ck_assert(b.options.samples == 5 && !b.options.independent && !b.diagnostics);
    ck_assert(q[0].kind == DGEMMA_QUESTION_YES_NO && q[0].n_options == 0);
    ck_assert_str_eq(q[0].text, "Is it?");
    ck_assert_str_eq(q[1].text, "Pick\none.");
    ck_assert_str_eq(q[1].options[0].name, "false");
    ck_assert_str_eq(q[1].options[0].description, "nay");
    ck_assert_str_eq(q[1].options[1].name, "b");
    ck_assert(q[2].kind == DGEMMA_QUESTION_SCORE && q[2].n_options == 1);
    dg_decide_body_clear(&b);
}
END_TEST

/* Pictures stand in front of the state. */
START_TEST(pictures_come_first)
{
    dg_decide_body b;
    dg_http_error e = {0};
    ck_assert(read_body(&dg_systemone, "{'state':'s','images':['u','v']," ONE "}", &b, &e));
    ck_assert_ptr_null(b.options.state);
    ck_assert_str_eq(b.options.messages, "[{\"role\":\"user\",\"content\":["
                                         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\"}},"
                                         "{\"type\":\"image_url\",\"image_url\":{\"url\":\"v\"}},"
                                         "{\"type\":\"text\",\"text\":\"s\"}]}]");
    dg_decide_body_clear(&b);
}
END_TEST

Suite *questions_suite(void)
{
    Suite *s = suite_create("questions");
    TCase *t = tcase_create("questions");
    tcase_add_loop_test(t, what_is_taken_and_what_is_not, 0, DG_COUNT(verdicts));
    tcase_add_loop_test(t, limits_are_reached, 0, 4);
    tcase_add_test(t, what_is_read_is_what_was_said);
    tcase_add_test(t, pictures_come_first);
    suite_add_tcase(s, t);
    return s;
}
