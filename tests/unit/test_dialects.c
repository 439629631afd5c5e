/* Bodies of the other dialects, and the conversation that each of them becomes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/anthropic_request.h"
#include "server/errors.h"
#include "server/json_body.h"
#include "server/ollama_request.h"
#include "server/openai_request.h"
#include "server/responses_request.h"
#include "server/start_request.h"
#include "suites.h"
#include "support/alloc_fail.h"
#include "support/chat_limits.h"
#include "support/judge.h"

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
    /* a call that nobody answered is over when the assistant speaks again */
    {dg_ollama_read_chat,
     "{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f'}}]},"
     "{'role':'assistant','content':'A'},{'role':'tool','tool_name':'f','content':'x'}]}",
     "[{'role':'assistant','content':'','tool_calls':[{'type':'function','function':{'name':'f'},"
     "'id':'call_0_0'}]},{'role':'assistant','content':'A'},"
     "{'role':'tool','content':'x','name':'f'}]"},
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
    ck_assert(c.stream && c.any_object && c.options.thinking && c.options.single_tool_call);
    ck_assert_int_eq(dg_test_judge(c.constraint, "<|tool_call>call:f{}<tool_call|>"),
                     DGEMMA_ACCEPTED);
    ck_assert_int_eq(dg_test_judge(c.constraint, "{"), DGEMMA_REJECTED);
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
    ck_assert_int_eq(dg_test_judge(c.constraint, "<|tool_call>call:f{}<tool_call|>"),
                     DGEMMA_ACCEPTED);
    ck_assert_int_eq(dg_test_judge(c.constraint, "H"), DGEMMA_REJECTED);
    dg_chat_clear(&c);
    ck_assert(read_body(dg_anthropic_read, &c, "{" ASK "}", &e));
    ck_assert(!c.options.thinking && c.hide_thinking && !c.stream);
    dg_chat_clear(&c);

    ck_assert(read_body(dg_ollama_read_chat, &c,
                        "{" ASK
                        ",'options':{'num_predict':5,'seed':9,'temperature':0.5,'min_p':0.25,"
                        "'stop':['a']},'format':'json','think':'high'}",
                        &e));
    ck_assert(c.stream && c.any_object && c.options.thinking); /* a stream unless told otherwise */
    ck_assert_int_eq(dg_test_judge(c.constraint, "{}"), DGEMMA_ACCEPTED);
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

/* What is refused, and for which field; NULL: it is not. */
typedef struct verdict {
    dg_read_fn *read;
    const char *body, *param;
} verdict;

#define EDIT(rest)     "{'text':'a \xC3\xA9 bc'," rest "}"
#define CHAT(fields)   dg_openai_read_chat, "{'messages':[{'role':'user','content':'Q'}]," fields "}"
#define XARGS(args)    CHAT("'vllm_xargs':{'diffusion_read_only':true," args "}")
#define SEED           "vllm_xargs.diffusion_seed_canvas"
#define SAMPLES        "vllm_xargs.diffusion_samples"
#define TWO            "'diffusion_canvas_length':2,'diffusion_seed_canvas':[7,8]"
#define FIFTEEN        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define SAID(messages) dg_openai_read_chat, "{'messages':[" messages "]}"
#define PICTURE        "{'type':'image_url'}"
#define CLAUDE(fields) dg_anthropic_read, "{" ASK "," fields "}"
#define BLOCK(role, block)                                                                         \
    dg_anthropic_read, "{'max_tokens':9,'messages':[{'role':'" role "','content':[" block "]}]}"
#define OLLAMA(fields) dg_ollama_read_chat, "{" ASK "," fields "}"
#define ITEMS(items)   dg_responses_read, "{'input':[" items "]}"

static const verdict verdicts[] = {
    {CHAT("'n':8"), NULL},
    {CHAT("'n':9"), "n"},
    {CHAT("'n':0"), "n"},
    {dg_openai_read_completion, "{'prompt':['a','b','c','d'],'n':2}", NULL},
    {dg_openai_read_completion, "{'prompt':['a','b','c','d','e'],'n':2}", "n"},
    {CHAT("'seed':1.5"), "seed"},
    {CHAT("'stop':7"), "stop"},
    {CHAT("'stop':['a',7]"), "stop"},
    {CHAT("'logit_bias':{'999':100}"), NULL},
    {CHAT("'logit_bias':{'1000':1}"), "logit_bias"},
    {CHAT("'logit_bias':{'07':1}"), "logit_bias"},
    {CHAT("'logit_bias':{'-1':1}"), "logit_bias"},
    {CHAT("'logit_bias':{'7':100.5}"), "logit_bias"},
    {CHAT("'logit_bias':{'7':'1'}"), "logit_bias"},
    {CHAT("'diffusion':{'stepz':1}"), "diffusion.stepz"},
    {XARGS("'diffusion_canvas_length':256"), NULL},
    {XARGS("'diffusion_canvas_length':257"), "vllm_xargs.diffusion_canvas_length"},
    {XARGS("'diffusion_canvas_length':2,'diffusion_seed_canvas':[0,999]"), NULL},
    {XARGS("'diffusion_canvas_length':2,'diffusion_seed_canvas':[0,1000]"), SEED},
    {XARGS("'diffusion_canvas_length':2,'diffusion_seed_canvas':[0]"), SEED},
    {XARGS("'diffusion_canvas_length':2,'diffusion_seed_canvas':[0,1,2]"), SEED},
    {XARGS("'diffusion_seed_canvas':7"), SEED},
    {XARGS(TWO ",'diffusion_pinned':[1,0]"), NULL},
    {XARGS(TWO ",'diffusion_pinned':[2]"), "vllm_xargs.diffusion_pinned"},
    {XARGS(TWO ",'diffusion_pinned':[-1]"), "vllm_xargs.diffusion_pinned"},
    {XARGS("'diffusion_pinned':[0]"), "vllm_xargs.diffusion_pinned"},
    {XARGS("'diffusion_pinned':[]"), "vllm_xargs.diffusion_pinned"},
    {XARGS("'diffusion_constrained':true,'diffusion_max_steps':1"),
     "vllm_xargs.diffusion_constrained"},
    {XARGS("'diffusion_max_steps':2},'logprob_token_ids':[999],'x':{"), NULL},
    {XARGS("'diffusion_max_steps':2},'logprob_token_ids':[1000],'x':{"), "logprob_token_ids"},
    {XARGS("'diffusion_constrained':true,'diffusion_max_steps':1},'logprob_token_ids':[1],'x':{"),
     NULL},
    {XARGS("'diffusion_constrained':true,'diffusion_max_steps':2},'logprob_token_ids':[1],'x':{"),
     NULL},
    {XARGS("'diffusion_constrained':1},'logprob_token_ids':[1],'x':{"), NULL},
    {XARGS("'diffusion_constrained':0"), NULL},
    {XARGS("'diffusion_constrained':2},'logprob_token_ids':[1],'x':{"),
     "vllm_xargs.diffusion_constrained"},
    {XARGS("'diffusion_constrained':'1'},'logprob_token_ids':[1],'x':{"),
     "vllm_xargs.diffusion_constrained"},
    {CHAT("'vllm_xargs':{'diffusion_read_only':1.0}"), "vllm_xargs.diffusion_read_only"},
    {CHAT("'vllm_xargs':{'diffusion_read_only':1," TWO "}"), NULL},
    {CHAT("'vllm_xargs':{'diffusion_read_only':0," TWO "}"), "vllm_xargs"},
    {CHAT("'stream':1"), "stream"},
    {XARGS(TWO ",'diffusion_pinned':[0],'diffusion_samples':8"), NULL},
    {XARGS(TWO ",'diffusion_pinned':[0],'diffusion_samples':9"), SAMPLES},
    {XARGS(TWO ",'diffusion_pinned':[0],'diffusion_samples':0"), SAMPLES},
    {XARGS(TWO ",'diffusion_pinned':[0],'diffusion_samples':true"), SAMPLES},
    {XARGS(TWO ",'diffusion_pinned':[0],'diffusion_samples':2},'n':2,'x':{"), SAMPLES},
    {XARGS(TWO ",'diffusion_samples':2"), SAMPLES},
    {XARGS(TWO ",'diffusion_samples':1"), NULL},
    {XARGS("'diffusion_sample':2"), "vllm_xargs.diffusion_sample"},
    {CHAT("'vllm_xargs':{'diffusion_steps':null}"), "vllm_xargs.diffusion_steps"},
    {CHAT("'vllm_xargs':{'diffusion_samples':2}"), "vllm_xargs"},
    {CHAT("'vllm_xargs':{'else':2}"), NULL},
    {XARGS("'diffusion_max_steps':1},'stream':true,'x':{"), "stream"},
    {CHAT("'vllm_xargs':{'diffusion_max_steps':1}"), NULL},
    {CHAT("'logprob_token_ids':[1]"), "logprob_token_ids"},
    {CHAT("'logprob_token_ids':null"), NULL},
    {CHAT("'vllm_xargs':{" TWO "}"), "vllm_xargs"},
    {CHAT("'vllm_xargs':{'diffusion_pinned':[0]}"), "vllm_xargs"},
    {CHAT("'vllm_xargs':{'diffusion_constrained':true}"), "vllm_xargs"},
    {CHAT("'vllm_xargs':{'diffusion_max_steps':0}"), "vllm_xargs.diffusion_max_steps"},
    {CHAT("'vllm_xargs':{'diffusion_canvas_length':256}"), NULL},
    {CHAT("'vllm_xargs':{'diffusion_canvas_length':257}"), "vllm_xargs.diffusion_canvas_length"},
    {CHAT("'return_tokens_as_token_ids':1"), NULL},
    {CHAT("'return_tokens_as_token_ids':'yes'"), "return_tokens_as_token_ids"},
    {CHAT("'include_reasoning':'no'"), "include_reasoning"},
    {CHAT("'stop_token_ids':[999," FIFTEEN "]"), NULL},
    {CHAT("'stop_token_ids':[1000]"), "stop_token_ids"},
    {CHAT("'stop_token_ids':[1,2," FIFTEEN "]"), "stop_token_ids"},
    {CHAT("'stop_token_ids':7"), "stop_token_ids"},
    {CHAT("'reasoning_effort':'hard'"), "reasoning_effort"},
    {CHAT("'logprobs':true,'top_logprobs':20"), NULL},
    {CHAT("'logprobs':true,'top_logprobs':21"), "top_logprobs"},
    {CHAT("'top_logprobs':1"), "top_logprobs"},
    {CHAT("'logprobs':1"), "logprobs"},
    {CHAT("'response_format':{'type':'text'}"), NULL},
    {CHAT("'response_format':{'type':'json_schema'}"), "/response_format/schema"},
    {CHAT("'response_format':{'type':'xml'}"), "response_format"},
    {CHAT("'continue_final_message':true"), "continue_final_message"},
    {dg_openai_read_chat, "{'messages':[]}", "messages"},
    {SAID("7"), "messages"},
    {SAID("{'role':'user','content':[" PICTURE "," PICTURE "]}"), NULL},
    {SAID("{'role':'user','content':[" PICTURE "," PICTURE "]},{'role':'user','content':["
          "{'type':'video_url'}]}"),
     "messages"},
    {dg_openai_read_chat,
     "{'messages':[{'role':'assistant','content':'a'}],'continue_final_message':true}",
     "continue_final_message"},
    {dg_openai_read_chat,
     "{'messages':[{'role':'user','content':'a'},{'role':'user','content':'b'}],"
     "'continue_final_message':true}",
     "continue_final_message"},
    {dg_openai_read_completion, "{'prompt':[0,999]}", NULL},
    {dg_openai_read_completion, "{'prompt':[1000]}", "prompt"},
    {dg_openai_read_completion, "{'prompt':[1,-1]}", "prompt"},
    {dg_openai_read_completion, "{'prompt':7}", "prompt"},
    {dg_openai_read_completion, "{'prompt':[]}", "prompt"},
    {dg_openai_read_completion, "{'prompt':'a','suffix':'b'}", NULL},
    {dg_openai_read_completion, "{'prompt':[1,2],'suffix':'b'}", "prompt"},
    {dg_openai_read_completion, "{'prompt':'a','suffix':7}", "suffix"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1,null,3],'keep':[[0,1],[2,3]],'strength':0.5}}"),
     NULL},
    {CHAT("'diffusion':{'canvas':7}"), "canvas"},
    {CHAT("'diffusion':{'canvas':{'tokens':[]}}"), "diffusion.canvas.tokens"},
    {CHAT("'diffusion':{'canvas':{'keep':[]}}"), "diffusion.canvas.tokens"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1000]}}"), "diffusion.canvas.tokens"},
    {CHAT("'diffusion':{'canvas':{'tokens':[-2]}}"), "diffusion.canvas.tokens"},
    {CHAT("'diffusion':{'canvas':{'tokens':['a']}}"), "diffusion.canvas.tokens"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1,2],'keep':[[0,3]]}}"), "diffusion.canvas.keep"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1,2],'keep':[[1,0]]}}"), "diffusion.canvas.keep"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1,2],'keep':[[-1,1]]}}"), "diffusion.canvas.keep"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1,2],'keep':[0]}}"), "diffusion.canvas.keep"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1,null],'keep':[[0,2]]}}"), "diffusion.canvas.keep"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1],'strength':2}}"), "diffusion.canvas.strength"},
    {CHAT("'diffusion':{'canvas':{'tokens':[1],'text':'x'}}"), "diffusion.canvas"},
    {dg_infill_read, "{'input_prefix':'a','input_suffix':'b','n_predict':-1,'seed':-1}", NULL},
    {dg_infill_read, "{'input_suffix':'','input_extra':[{'filename':'f','text':'t'}]}", NULL},
    {dg_infill_read, "{}", "input_prefix"},
    {dg_infill_read, "{'input_prefix':7}", "input_prefix"},
    {dg_infill_read, "{'input_prefix':'a','input_extra':[{'filename':'f'}]}", "input_extra"},
    {dg_infill_read, "{'input_prefix':'a','n_predict':0}", "n_predict"},
    {dg_infill_read, "{'input_prefix':'a','grammar':'','response_format':{'type':'text'}}", NULL},
    {dg_infill_read, "{'input_prefix':'a','grammar':'root ::= [x]'}", "/grammar"},
    {dg_infill_read, "{'input_prefix':'a','json_schema':{}}", "/json_schema"},
    {dg_infill_read, "{'input_prefix':'a','response_format':7}", "response_format"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'guided_regex':'a'"), "/guided_regex"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'response_format':{'type':'json_object'}"),
     "/response_format"},
    {dg_edit_read, EDIT("'ranges':[[0,1],[3,4]]"), NULL},
    {dg_edit_read, EDIT("'ranges':[[1,1]],'instruction':'x'"), NULL},
    {dg_edit_read, EDIT("'ranges':[[4,5]],'strength':0"), NULL},
    {dg_edit_read, EDIT("'ranges':[[4,7]]"), "ranges"},
    {dg_edit_read, EDIT("'ranges':[[2,1]]"), "ranges"},
    {dg_edit_read, EDIT("'ranges':[[2,3],[0,1]]"), "ranges"},
    {dg_edit_read, EDIT("'ranges':[[0,2],[1,3]]"), "ranges"},
    {dg_edit_read, EDIT("'ranges':[[-1,2]]"), "ranges"},
    {dg_edit_read, EDIT("'ranges':[[0,1.5]]"), "ranges"},
    {dg_edit_read, EDIT("'ranges':[]"), "ranges"},
    {dg_edit_read, EDIT("'ranges':7"), "ranges"},
    {dg_edit_read, EDIT("'ranges':[[1,2]],'lengths':'same'"), "ranges"}, /* a blank */
    {dg_edit_read, EDIT("'ranges':[[0,1]],'lengths':'long'"), "lengths"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'lengths':'auto','strength':0.5"), "strength"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'strength':-1"), "strength"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'instruction':7"), "instruction"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'n':2"), "n"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'messages':[{'role':'user','content':'a'}]"), NULL},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'messages':[{'role':'assistant','content':'a'}]"),
     "messages"},
    {dg_edit_read, EDIT("'ranges':[[0,1]],'messages':[{'role':'user','content':[]}]"), "messages"},
    {dg_edit_read, "{'ranges':[[0,0]]}", "text"},
    {dg_openai_read_completion, "{'prompt':'a','echo':true}", "echo"},
    {CHAT("'echo':true"), "echo"},
    {CHAT("'echo':false"), NULL},
    {dg_openai_read_completion, "{'prompt':'a','suffix':'','echo':false,'logprobs':0}", NULL},
    {dg_openai_read_completion, "{'prompt':'a','logprobs':21}", "logprobs"},

    {dg_anthropic_read, "{'messages':[{'role':'user','content':'Q'}]}", "max_tokens"},
    {dg_anthropic_read_count, "{'messages':[{'role':'user','content':'Q'}]}", NULL},
    {dg_anthropic_read, "{'max_tokens':9,'messages':[{'role':'tool','content':'Q'}]}", "messages"},
    {dg_anthropic_read, "{'max_tokens':9,'messages':[]}", "messages"},
    {BLOCK("user",
           "{'type':'image','source':{'type':'url','media_type':'image/png','data':'AAAA'}}"),
     "messages.0.content.0"},
    {BLOCK("user", "{'type':'image','source':{'type':'base64','data':'x'}}"),
     "messages.0.content.0"},
    {BLOCK("assistant",
           "{'type':'image','source':{'type':'base64','media_type':'image/png','data':'x'}}"),
     "messages.0.content.0"},
    {BLOCK("user", "{'type':'text','text':'a'},{'type':'document','source':{'type':'base64',"
                   "'data':'x'}}"),
     "messages.0.content.1"},
    {BLOCK("user", "{'type':'tool_use','id':'1','name':'f'}"), "messages.0.content.0"},
    {BLOCK("assistant", "{'type':'tool_use','id':'1','name':'f','input':[]}"),
     "messages.0.content.0"},
    {BLOCK("user", "{'type':'tool_result'}"), "messages.0.content.0"},
    {BLOCK("assistant", "{'type':'redacted_thinking','data':'x'},{'type':'text','text':'a'}"),
     NULL},
    {BLOCK("user", "{'type':'thinking','thinking':'x'}"), "messages.0.content.0"},
    {CLAUDE("'system':7"), "system"},
    {CLAUDE("'system':[{'type':'image'}]"), "system"},
    {CLAUDE("'tools':[{'type':'custom','name':'f'}]"), NULL},
    {CLAUDE("'tools':[{'type':'bash_20250124','name':'bash'}]"), "tools"},
    {CLAUDE("'tool_choice':{'type':'some'}"), "tool_choice"},
    {CLAUDE("'thinking':{'type':'enabled','budget_tokens':0}"), "thinking"},
    {CLAUDE("'thinking':{'type':'sometimes'}"), "thinking"},
    {CLAUDE("'output_config':{'effort':'hard'}"), "output_config"},
    {CLAUDE("'output_config':{'format':{}}"), "output_config.format"},

    {OLLAMA("'format':''"), NULL},
    {OLLAMA("'format':{'type':'object'}"), NULL},
    {OLLAMA("'format':'xml'"), "format"},
    {OLLAMA("'think':'much'"), "think"},
    {OLLAMA("'options':{'num_predict':'x'}"), "options.num_predict"},
    {dg_ollama_read_chat, "{'messages':[{'role':'user','images':[7]}]}", "images"},
    {dg_ollama_read_chat, "{'messages':[{'role':'assistant','tool_calls':[{}]}]}", "messages"},
    {dg_ollama_read_generate, "{'prompt':'Q','suffix':'x'}", NULL},
    {dg_ollama_read_generate, "{'prompt':'Q','suffix':'x','images':['AAAA']}", "images"},
    {dg_ollama_read_generate, "{'prompt':'Q','suffix':'x','think':'high'}", "think"},
    {dg_ollama_read_generate, "{'prompt':'Q','suffix':'x','think':false}", NULL},
    {dg_ollama_read_generate, "{'prompt':'Q','context':[1]}", "context"},
    {dg_ollama_read_generate, "{'prompt':'Q','suffix':'','context':[]}", NULL},
    {dg_ollama_read_generate, "{'prompt':'Q','raw':true,'images':['AAAA']}", "images"},

    {dg_responses_read, "{'input':'Q','max_output_tokens':0}", "max_output_tokens"},
    {dg_responses_read, "{'input':'Q','previous_response_id':'x'}", "previous_response_id"},
    {dg_responses_read, "{'input':'Q','background':false}", NULL},
    {dg_responses_read, "{'input':'Q','text':{'format':{'type':'json_schema'}}}",
     "/text/format/schema"},
    {dg_responses_read, "{'input':'Q','text':{'format':{'type':'xml'}}}", "text.format"},
    {dg_responses_read, "{'input':'Q','tools':[{'type':'web_search'}]}", NULL},
    {dg_responses_read, "{'input':'Q','tools':[{'type':'function'}]}", "tools"},
    {dg_responses_read, "{'input':[]}", "input"},
    {ITEMS("{'type':'function_call','name':'f','arguments':'{}'}"), "input"},
    {ITEMS("{'type':'other'}"), "input"},
    {ITEMS("{'role':'user','content':[{'type':'input_image'}]}"), "input"},
};

START_TEST(test_verdicts)
{
    const verdict *v = &verdicts[_i];
    dg_chat c;
    dg_http_error e = {0};
    bool ok = read_body(v->read, &c, v->body, &e);
    ck_assert_msg(ok == !v->param, "%s: %s", v->body, e.message);
    if (ok) {
        dg_chat_clear(&c);
        return;
    }
    ck_assert_str_eq(e.param, v->param);
    ck_assert_int_eq(e.status, 400);
}
END_TEST

/* What is taken means what was said. */
START_TEST(test_more_options)
{
    dg_chat c;
    dg_http_error e;
    ck_assert(read_body(dg_openai_read_chat, &c,
                        "{'messages':[{'role':'user','content':'Q'}],'stop':['a','b'],'reasoning_"
                        "effort':'minimal','include_reasoning':"
                        "false,'diffusion':{'drafts':true},'chat_template_kwargs':{"
                        "'preserve_thinking':true}}",
                        &e));
    ck_assert_str_eq(c.options.stop[1], "b");
    ck_assert(!c.options.thinking && c.hide_thinking && !c.options.drafts && !c.constraint);
    ck_assert_ptr_nonnull(strstr(c.messages, "\"preserve_thinking\":true"));
    dg_chat_forget_prompt(&c);
    ck_assert_ptr_null(c.messages);
    ck_assert_ptr_null(json_object_get(c.root, "messages"));
    dg_chat_clear(&c);
    ck_assert(read_body(dg_openai_read_chat, &c,
                        "{'messages':[{'role':'developer','content':'A'}],'response_format':{"
                        "'type':'json_object'}}",
                        &e));
    ck_assert_ptr_null(strstr(c.messages, "system"));
    dg_chat_clear(&c);
    for (int n = 64; n <= 65; n++) { /* stop strings */
        char body[400] = "{" ASK ",'stop':['a'";
        for (int i = 1; i < n; i++)
            strcat(body, ",'a'");
        ck_assert_int_eq(read_body(dg_openai_read_chat, &c, strcat(body, "]}"), &e), n == 64);
        if (n == 64)
            dg_chat_clear(&c);
    }
    ck_assert(read_body(dg_openai_read_completion, &c, "{'prompt':[[1,2],[3]],'logprobs':0}", &e));
    ck_assert(c.n_prompt == 2 && c.prompts[0].n_token == 2 && c.prompts[1].tokens[0] == 3);
    ck_assert(c.logprobs && c.options.n_logprobs == 0);
    dg_chat_clear(&c);

    ck_assert(read_body(dg_anthropic_read, &c, "{" ASK ",'thinking':{'type':'adaptive'}}", &e));
    ck_assert(c.options.thinking && !c.options.answer_prefix);
    dg_chat_clear(&c);
    ck_assert(read_body(dg_anthropic_read, &c,
                        "{'max_tokens':9,'messages':[{'role':'user','content':'Q'},{'role':"
                        "'assistant','content':'Once'}]}",
                        &e));
    ck_assert_str_eq(c.options.answer_prefix, "Once");
    dg_chat_clear(&c);
    ck_assert(read_body(dg_anthropic_read, &c,
                        "{'max_tokens':9,'messages':[{'role':'user','content':'Q'},{'role':"
                        "'assistant','content':[{'type':'text','text':'Once'},{'type':'tool_use',"
                        "'id':'1','name':'f'}]}]}",
                        &e));
    ck_assert_ptr_null(c.options.answer_prefix); /* calls wait for their results */
    dg_chat_clear(&c);

    static const struct {
        const char *think;
        bool on;
    } thinks[] = {{"true", true}, {"false", false}, {"null", false}, {"'none'", false}};
    for (size_t i = 0; i < sizeof thinks / sizeof *thinks; i++) {
        char body[200];
        snprintf(body, sizeof body, "{" ASK ",'think':%s,'options':{'num_predict':0}}",
                 thinks[i].think);
        ck_assert(read_body(dg_ollama_read_chat, &c, body, &e));
        ck_assert_int_eq(c.options.thinking, thinks[i].on);
        ck_assert_int_eq(c.hide_thinking, !thinks[i].on);
        ck_assert_int_eq(c.options.max_tokens, 4096);
        dg_chat_clear(&c);
    }
    ck_assert(read_body(dg_responses_read, &c,
                        "{'input':'Q','include':['message.output_text.logprobs'],"
                        "'top_logprobs':3}",
                        &e));
    ck_assert(c.logprobs && c.options.n_logprobs == 3);
    dg_chat_clear(&c);
}
END_TEST

/* A canvas that is brought along and read. */
START_TEST(test_canvas_reads)
{
    static const verdict known = {
        XARGS("'diffusion_canvas_length':3,'diffusion_seed_canvas':[7,8,9],"
              "'diffusion_pinned':[2,0]},'logprob_token_ids':[5,4],'x':{"),
        NULL};
    static const verdict noise = {XARGS("'diffusion_canvas_length':2"), NULL};
    static const verdict several = {XARGS(TWO ",'diffusion_pinned':[1],'diffusion_samples':3"),
                                    NULL};
    dg_chat c;
    dg_http_error e;
    ck_assert_msg(read_body(known.read, &c, known.body, &e), "%s", e.message);
    ck_assert(c.reads && !c.read.among && c.read.n_tokens == 3 && c.read.n_ids == 2);
    ck_assert_mem_eq(c.read.tokens, ((int32_t[]){7, 8, 9}), 3 * sizeof(int32_t));
    ck_assert_mem_eq(c.read.pinned, ((uint8_t[]){1, 0, 1}), 3);
    ck_assert_mem_eq(c.read.ids, ((int32_t[]){5, 4}), 2 * sizeof(int32_t));
    dg_chat_clear(&c);
    /* nothing is known, nothing stays */
    ck_assert_msg(read_body(noise.read, &c, noise.body, &e), "%s", e.message);
    ck_assert_uint_eq(c.read.n_tokens, 2);
    ck_assert_mem_eq(c.read.tokens, ((int32_t[]){-1, -1}), 2 * sizeof(int32_t));
    ck_assert_mem_eq(c.read.pinned, ((uint8_t[]){0, 0}), 2);
    dg_chat_clear(&c);
    /* of each sample what is pinned is known */
    ck_assert_msg(read_body(several.read, &c, several.body, &e), "%s", e.message);
    ck_assert_int_eq(c.n_choice, 3);
    ck_assert_mem_eq(c.read.tokens, ((int32_t[]){-1, 8}), 2 * sizeof(int32_t));
    dg_chat_clear(&c);
}
END_TEST

/* 8 x 256 x (127 + 1) log-probabilities in the answers to one request, and no more. */
START_TEST(test_how_much_is_told)
{
    static const char *const asks[] = {
        "'messages':[{'role':'user','content':'Q'}],'n':8,'logprobs':true",
        "'prompt':['a','b','c','d'],'n':2,'logprobs':0", "'prompt':'a','n':8"};
    static char ids[512], body[1024];
    for (int i = 0; i < 3; i++)
        for (int n = 127; n <= 128; n++) {
            dg_chat c;
            dg_http_error e = {0};
            memset(ids, 0, sizeof ids);
            for (int k = 0; k < n; k++)
                strcat(ids, k ? ",5" : "5");
            snprintf(body, sizeof body,
                     "{%s,'logprob_token_ids':[%s],'vllm_xargs':{'diffusion_read_only':1,"
                     "'diffusion_canvas_length':256}}",
                     asks[i], ids);
            bool fits = n == 127 || i == 2; /* who asks for none is told none */
            bool ok = read_body(i ? dg_openai_read_completion : dg_openai_read_chat, &c, body, &e);
            ck_assert_msg(ok == fits, "%d, %d: %s", i, n, e.message);
            if (ok) {
                dg_chat_clear(&c);
                continue;
            }
            ck_assert_int_eq(e.status, 400);
            ck_assert_str_eq(e.code, "limit_exceeded");
            ck_assert_str_eq(e.param, "logprob_token_ids");
            ck_assert(strstr(e.message, "264192") && strstr(e.message, "262144"));
        }
}
END_TEST

/* A name that is cut in the middle of a letter: names of both parities, so that one of them is. */
START_TEST(test_long_names)
{
    static const char letters[] = "\xC3\xA9";
    for (int odd = 0; odd < 2; odd++) {
        char name[400] = "a";
        dg_http_error e;
        for (size_t n = (size_t)odd; n + 2 < sizeof name; n += 2)
            memcpy(name + n, letters, sizeof letters);
        ck_assert(!dg_refuse(&e, 400, "unknown_parameter", name, "%s: not known", name));
        json_t *object = dg_error_object(&e);
        const char *param =
            json_string_value(json_object_get(json_object_get(object, "error"), "param"));
        ck_assert_ptr_nonnull(param);
        ck_assert_int_eq(strncmp(param, name, 250), 0);
        json_decref(object);
    }
}
END_TEST

/* What the library says, as clients hear it. */
START_TEST(test_statuses)
{
    static const struct {
        dgemma_status st;
        const char *msg;
        int status;
        const char *code, *param;
    } cases[] = {
        {DGEMMA_E_ARG, "top_p is 7", 400, "invalid_value", "top_p"},
        {DGEMMA_E_ARG, "canvas_length is 9", 400, "invalid_value", "diffusion.canvas_length"},
        {DGEMMA_E_ARG, "what", 400, "invalid_value", "messages"},
        {DGEMMA_E_FORMAT, "no picture", 400, "invalid_value", "messages"},
        {DGEMMA_E_UNSUPPORTED, "tools", 400, "unsupported", "tools"},
        {DGEMMA_E_CONTEXT, "too long", 400, "context_length_exceeded", "messages"},
        {DGEMMA_E_LIMIT, "stop string 1", 400, "limit_exceeded", "stop"},
        {DGEMMA_E_LIMIT, "the constraint is too complex for the canvas", 400, "schema_too_complex",
         ""},
        {DGEMMA_E_ARG, "a read goes with no constraint", 400, "invalid_value",
         "vllm_xargs.diffusion_read_only"},
        {DGEMMA_E_ARG, "a constraint goes with no canvas", 400, "invalid_value",
         "diffusion.canvas"},
        {DGEMMA_E_BUSY, "8 requests are waiting already", 429, "queue_full", ""},
        {DGEMMA_E_NOMEM, "out", 503, "out_of_memory", ""},
        {DGEMMA_E_INTERNAL, "oh", 500, NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dgemma_error err = {.status = cases[i].st, .n_context = 5, .n_prompt = 6};
        dg_http_error e;
        strcpy(err.msg, cases[i].msg);
        ck_assert(!dg_refuse_status(&e, &err, "messages"));
        ck_assert_int_eq(e.status, cases[i].status);
        ck_assert_pstr_eq(e.code, cases[i].code);
        ck_assert_str_eq(e.param, cases[i].param);
        ck_assert_int_eq(e.retry_after > 0, e.status == 503 || e.status == 429);
        ck_assert_int_eq(dg_error_is_context(&e), cases[i].st == DGEMMA_E_CONTEXT);
        if (dg_error_is_context(&e))
            ck_assert(e.n_context == 5 && e.n_prompt == 6);
        json_t *object = dg_error_object(&e);
        const char *type =
            json_string_value(json_object_get(json_object_get(object, "error"), "type"));
        ck_assert_str_eq(type, e.status == 400   ? "invalid_request_error"
                               : e.status == 429 ? "rate_limit_error"
                               : e.status == 503 ? "unavailable_error"
                                                 : "server_error");
        json_decref(object);
    }
}
END_TEST

/* A client is told a file's name, and nothing of where it lies. */
START_TEST(test_folders_are_hidden)
{
    static const char *const cases[][3] = {
        {"/a/b", "/a/b/x: no", "x: no"},
        {"/a/b//", "/a/b/x: no", "x: no"},
        {"/a/b/", "in /a/b: no", "in /a/b: no"},
        {"/a/b", "/a//b/x", "/a//b/x"},
        {"", "/a: no", "/a: no"},
    };
    dgemma_error err = {.status = DGEMMA_E_IO};
    dg_http_error e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strcpy(err.msg, cases[i][1]);
        dg_hide_folder(err.msg, cases[i][0]);
        ck_assert_str_eq(err.msg, cases[i][2]);
    }
    strcpy(err.msg, "block 1: /a/secret/model.gguf was cut short");
    dg_refuse_status(&e, &err, NULL);
    ck_assert_str_eq(e.message, "model.gguf was cut short");
    memset(err.msg, 's', sizeof err.msg - 1); /* a path that leaves no room for more */
    err.msg[0] = '/';
    err.msg[sizeof err.msg - 1] = '\0';
    dg_refuse_status(&e, &err, NULL);
    ck_assert_str_eq(e.message, "a file of the model is not whole any more");
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
    tcase_add_loop_test(c, test_verdicts, 0, (int)(sizeof verdicts / sizeof *verdicts));
    tcase_add_test(c, test_options);
    tcase_add_test(c, test_more_options);
    tcase_add_test(c, test_statuses);
    tcase_add_test(c, test_folders_are_hidden);
    tcase_add_test(c, test_canvas_reads);
    tcase_add_test(c, test_how_much_is_told);
    tcase_add_test(c, test_long_names);
    tcase_add_loop_test(c, test_no_memory, 0, 3);
    suite_add_tcase(s, c);
    return s;
}
