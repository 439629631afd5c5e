/* Bodies of the other dialects, and the conversation that each of them becomes. */
#include <stdlib.h>
#include <string.h>
#include "server/anthropic_request.h"
#include "server/json_body.h"
#include "server/ollama_request.h"
#include "server/responses_request.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/chat_limits.h"

/* JSON is written with ' for " here. */
static char *quoted(const char *text)
{
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return copy;
}

static bool read_body(dg_read_fn *read, dg_chat *c, const char *body, dg_http_error *e)
{
    char *text = quoted(body);
    json_t *root = dg_json_body(text, strlen(text), e);
    free(text);
    ck_assert_msg(root, "%s: %s", body, e->message);
    return read(c, root, &dg_test_chat_limits, 7, e);
}

typedef struct conversation {
    dg_read_fn *read;
    const char *body, *messages;
} conversation;

static const conversation conversations[] = {
    {dg_responses_read, "{'input':'Hi'}", "[{'role':'user','content':'Hi'}]"},
    /* instructions of all kinds are one system message */
    {dg_responses_read,
     "{'instructions':'A','input':[{'role':'developer','content':[{'type':'input_text','text':'B'}]"
     "},"
     "{'role':'system','content':'C'},{'role':'user','content':'Hi'},{'role':'system','content':"
     "'D'}]}",
     "[{'role':'system','content':'A\\n\\nB\\n\\nC'},{'role':'user','content':'Hi'},"
     "{'role':'system','content':'D'}]"},
    /* a turn's thoughts, text and calls are one message */
    {dg_responses_read,
     "{'input':[{'role':'user','content':'Q'},{'type':'reasoning','summary':[],'content':[{'text':"
     "'a'},{'text':'b'}]},{'role':'assistant','content':[{'type':'output_text','text':'T'}]},"
     "{'type':'function_call','call_id':'1','name':'f','arguments':'{}'},"
     "{'type':'function_call','call_id':'2','name':'g','arguments':'{}'},"
     "{'type':'function_call_output','call_id':'1','output':'x'},"
     "{'type':'function_call_output','call_id':'2','output':'y'}]}",
     "[{'role':'user','content':'Q'},{'role':'assistant','content':'T','reasoning_content':'a\\nb',"
     "'tool_calls':[{'type':'function','function':{'name':'f','arguments':'{}'},'id':'1'},"
     "{'type':'function','function':{'name':'g','arguments':'{}'},'id':'2'}]},"
     "{'role':'tool','tool_call_id':'1','content':'x'},{'role':'tool','tool_call_id':'2','content':"
     "'y'}]"},
    /* two texts in a row are two messages */
    {dg_responses_read,
     "{'input':[{'role':'assistant','content':'A'},{'role':'assistant','content':'B'},"
     "{'type':'reasoning','summary':[{'text':'s'}]},{'role':'assistant','content':'C'}]}",
     "[{'role':'assistant','content':'A'},{'role':'assistant','content':'B'},"
     "{'role':'assistant','content':'C','reasoning_content':'s'}]"},

    /* while calls wait for their results, whatever is said belongs to their turn */
    {dg_responses_read,
     "{'input':[{'type':'function_call','call_id':'1','name':'f','arguments':'{}'},"
     "{'role':'assistant','content':'A'},{'type':'reasoning','summary':[{'text':'s'}]},"
     "{'type':'function_call','call_id':'2','name':'g','arguments':'{}'},"
     "{'role':'assistant','content':'B'},{'type':'function_call_output','call_id':'1','output':'x'}"
     "]}",
     "[{'role':'assistant','content':'A\\nB','reasoning_content':'s','tool_calls':["
     "{'type':'function','function':{'name':'f','arguments':'{}'},'id':'1'},"
     "{'type':'function','function':{'name':'g','arguments':'{}'},'id':'2'}]},"
     "{'role':'tool','tool_call_id':'1','content':'x'}]"},

    /* instructions in the middle; a line for the service's bookkeeping; a document of text */
    {dg_anthropic_read,
     "{'max_tokens':9,'system':[{'text':'x-anthropic-billing-header: cch=1;'},{'text':'A'}],"
     "'messages':[{'role':'user','content':'Q'},{'role':'system','content':'S'},{'role':'system',"
     "'content':[{'type':'text','text':'T'},{'type':'text','text':'U'}]},{'role':'user','content':["
     "{'type':'document','source':{'type':'text','data':'D'}}]}]}",
     "[{'role':'system','content':'A'},{'role':'user','content':'Q'},{'role':'system','content':"
     "'S'},{'role':'system','content':'T\\n\\nU'},{'role':'user','content':[{'type':'text','text':"
     "'D'}]}]"},
    {dg_anthropic_read,
     "{'max_tokens':9,'system':'x-anthropic-billing-header: cch=2;\\nA','messages':[{'role':'user',"
     "'content':'Q'}]}",
     "[{'role':'system','content':'A'},{'role':'user','content':'Q'}]"},
    {dg_anthropic_read,
     "{'max_tokens':9,'system':[{'text':'A'},{'text':'B'}],'messages':[{'role':'user','content':"
     "'Hi'}]}",
     "[{'role':'system','content':'A\\n\\nB'},{'role':'user','content':'Hi'}]"},
    {dg_anthropic_read,
     "{'max_tokens':9,'messages':[{'role':'user','content':'Q'},{'role':'assistant','content':["
     "{'type':'thinking','thinking':'t'},{'type':'text','text':'T'},"
     "{'type':'tool_use','id':'1','name':'f','input':{'a':1}}]},"
     "{'role':'user','content':[{'type':'tool_result','tool_use_id':'1','content':'x'},"
     "{'type':'text','text':'more'}]}]}",
     "[{'role':'user','content':'Q'},{'role':'assistant','content':'T','reasoning_content':'t',"
     "'tool_calls':[{'type':'function','function':{'name':'f','arguments':{'a':1}},'id':'1'}]},"
     "{'role':'tool','tool_call_id':'1','content':'x'},"
     "{'role':'user','content':[{'type':'text','text':'more'}]}]"},
    /* a message of results alone, one of which failed */
    {dg_anthropic_read,
     "{'max_tokens':9,'messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':'1'"
     ","
     "'is_error':true,'content':[{'type':'text','text':'no'}]}]}]}",
     "[{'role':'tool','tool_call_id':'1','content':'Error: no'}]"},
    {dg_anthropic_read_count,
     "{'messages':[{'role':'user','content':[{'type':'image','source':{'type':'base64','media_type'"
     ":"
     "'image/png','data':'AAAA'}}]}]}",
     "[{'role':'user','content':[{'type':'image_url','image_url':{'url':'data:image/"
     "png;base64,AAAA'"
     "}}]}]"},
    /* the answer's beginning leaves the conversation */
    {dg_anthropic_read,
     "{'max_tokens':9,'messages':[{'role':'user','content':'Q'},{'role':'assistant','content':"
     "'Once'}]}",
     "[{'role':'user','content':'Q'}]"},

    {dg_ollama_read_chat,
     "{'messages':[{'role':'user','content':'Q','images':['AAAA']},{'role':'assistant','content':''"
     ",'thinking':'t','tool_calls':[{'function':{'name':'f','arguments':{'a':1}}}]},"
     "{'role':'tool','tool_name':'f','content':'x'}]}",
     "[{'role':'user','content':[{'type':'image_url','image_url':{'url':'data:image/"
     "png;base64,AAAA'"
     "}},{'type':'text','text':'Q'}]},{'role':'assistant','content':'','reasoning_content':'t',"
     "'tool_calls':[{'type':'function','function':{'name':'f','arguments':{'a':1}},'id':'call_1_0'"
     "}]},{'role':'tool','content':'x','name':'f','tool_call_id':'call_1_0'}]"},
    /* results without ids find their calls by name, then in order */
    {dg_ollama_read_chat,
     "{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f'}},{'function':{'name':"
     "'g'}},{'id':'7','function':{'name':'f'}}]},{'role':'tool','tool_name':'g','content':'x'},"
     "{'role':'tool','tool_name':'f','content':'y'},{'role':'tool','content':'z'},"
     "{'role':'tool','tool_name':'h','content':'w'}]}",
     "[{'role':'assistant','content':'','tool_calls':[{'type':'function','function':{'name':'f'},"
     "'id':'call_0_0'},{'type':'function','function':{'name':'g'},'id':'call_0_1'},"
     "{'type':'function','function':{'name':'f'},'id':'7'}]},"
     "{'role':'tool','content':'x','name':'g','tool_call_id':'call_0_1'},"
     "{'role':'tool','content':'y','name':'f','tool_call_id':'call_0_0'},"
     "{'role':'tool','content':'z','tool_call_id':'7'},"
     "{'role':'tool','content':'w','name':'h'}]"},
    {dg_ollama_read_generate, "{'prompt':'Q','system':'S'}",
     "[{'role':'system','content':'S'},{'role':'user','content':'Q'}]"},
};

START_TEST(test_conversations)
{
    const conversation *v = &conversations[_i];
    dg_chat c;
    dg_http_error e = {0};
    char *wanted = quoted(v->messages);
    ck_assert_msg(read_body(v->read, &c, v->body, &e), "%s: %s", v->body, e.message);
    ck_assert_str_eq(c.messages, wanted);
    ck_assert_int_eq(c.n_choice, 1);
    dg_chat_clear(&c);
    free(wanted);
}
END_TEST

#define ASK "'max_tokens':9,'messages':[{'role':'user','content':'Q'}]"
#define FLAT                                                                                       \
    "'tools':[{'type':'function','name':'f','description':'d','parameters':{'type':'object'}}]"

START_TEST(test_options)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_body(dg_responses_read, &c,
                        "{'input':'Q','max_output_tokens':5,'stream':true,'reasoning':{'effort':"
                        "'low'},'text':{'format':{'type':'json_object'}},'parallel_tool_calls':"
                        "false,'tool_choice':{'type':'function','name':'f'}," FLAT "}",
                        &e));
    ck_assert_int_eq(c.options.max_tokens, 5);
    ck_assert(c.stream && c.want_json && c.options.thinking && c.options.single_tool_call);
    ck_assert_int_eq(c.options.tool_choice, DGEMMA_TOOLS_NAMED);
    ck_assert_str_eq(c.options.tools,
                     "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                     "\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}}]");
    ck_assert_uint_eq(c.options.seed, 7);
    dg_chat_clear(&c);

    ck_assert(read_body(dg_anthropic_read, &c,
                        "{" ASK ",'thinking':{'type':'enabled','budget_tokens':50},'top_k':3,"
                        "'stop_sequences':['a','b'],'tools':[{'name':'f','input_schema':{}}],"
                        "'tool_choice':{'type':'any','disable_parallel_tool_use':true}}",
                        &e));
    ck_assert(c.options.thinking && !c.hide_thinking && c.options.single_tool_call);
    ck_assert_int_eq(c.options.thinking_budget, 50);
    ck_assert_int_eq(c.options.top_k, 3);
    ck_assert_uint_eq(c.options.n_stop, 2);
    ck_assert_str_eq(c.options.stop[1], "b");
    ck_assert_int_eq(c.options.tool_choice, DGEMMA_TOOLS_NAMED); /* the only one there is */
    ck_assert(c.must_call);
    dg_chat_clear(&c);
    ck_assert(read_body(dg_anthropic_read, &c, "{" ASK "}", &e));
    ck_assert(!c.options.thinking && c.hide_thinking && !c.stream);
    dg_chat_clear(&c);

    ck_assert(read_body(dg_ollama_read_chat, &c,
                        "{" ASK
                        ",'options':{'num_predict':5,'seed':9,'temperature':0.5,'min_p':0.25,"
                        "'stop':['a']},'format':'json','think':'high'}",
                        &e));
    ck_assert(c.stream && c.want_json && c.options.thinking); /* a stream unless told otherwise */
    ck_assert_int_eq(c.options.max_tokens, 5);
    ck_assert_uint_eq(c.options.seed, 9);
    ck_assert(c.options.temperature == 0.5F && c.options.min_p == 0.25F && c.options.n_stop == 1);
    dg_chat_clear(&c);
    ck_assert(
        read_body(dg_ollama_read_generate, &c, "{'prompt':'Q','raw':true,'stream':false}", &e));
    ck_assert(!c.stream && !c.messages);
    ck_assert_str_eq(c.prompts[0].text, "Q");
    ck_assert_int_eq(c.options.max_tokens, 256); /* text need not end: a block of it */
    dg_chat_clear(&c);
    ck_assert(read_body(dg_ollama_read_generate, &c,
                        "{'prompt':'Q','raw':true,'options':{'num_predict':-1}}", &e));
    ck_assert_int_eq(c.options.max_tokens, 4096);
    dg_chat_clear(&c);
    ck_assert(read_body(dg_ollama_read_generate, &c, "{'prompt':'Q'}", &e));
    ck_assert_int_eq(c.options.max_tokens, 4096);
    dg_chat_clear(&c);
    ck_assert(read_body(dg_ollama_read_generate, &c, "{'model':'x'}", &e));
    ck_assert_int_eq(c.n_choice, 0); /* only to load it */
    dg_chat_clear(&c);
}
END_TEST

START_TEST(test_no_memory)
{
    static const struct {
        dg_read_fn *read;
        const char *body;
    } cases[] = {
        {dg_responses_read,
         "{'instructions':'A','input':[{'role':'assistant','content':[{'text':'x','type':'text'}]},"
         "{'type':'function_call','call_id':'1','name':'f','arguments':'{}'}]," FLAT "}"},
        {dg_anthropic_read,
         "{" ASK ",'system':[{'text':'s'}],'stop_sequences':['a'],'tools':[{'name':'f'}]}"},
        {dg_ollama_read_chat, "{" ASK ",'format':'json','options':{'stop':['a']}}"},
    };
    for (long n = 1;; n++) {
        dg_chat c;
        dg_http_error e = {0};
        char *text = quoted(cases[_i].body);
        json_t *root = dg_json_body(text, strlen(text), &e);
        dg_test_fail_alloc_at(n);
        bool ok = cases[_i].read(&c, root, &dg_test_chat_limits, 7, &e);
        bool reached = dg_test_alloc_done();
        free(text);
        if (ok)
            dg_chat_clear(&c);
        ck_assert(ok || e.status >= 400);
        if (!reached) {
            ck_assert(ok);
            break;
        }
    }
}
END_TEST

Suite *dialects_suite(void)
{
    Suite *s = suite_create("dialects");
    TCase *c = tcase_create("dialects");
    tcase_add_loop_test(c, test_conversations, 0,
                        (int)(sizeof conversations / sizeof *conversations));
    tcase_add_test(c, test_options);
    tcase_add_loop_test(c, test_no_memory, 0, 3);
    suite_add_tcase(s, c);
    return s;
}
