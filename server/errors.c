#include "errors.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/common.h"
#include "json_text.h"

/* Agents shorten a conversation when they read this, so it means nothing else. */
static const char context_code[] = "context_length_exceeded";

/* How the library begins where a constraint was compiled and turns out to be too much later, when
 * nobody knows any more which field it came from. */
static const char too_complex[] = "the constraint is too complex";

bool dg_refuse(dg_http_error *e, int status, const char *code, const char *param, const char *fmt,
               ...)
{
    *e = (dg_http_error){.status = status, .code = code};
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    return false;
}

void dg_name_list_add(dg_name_list *l, const char *name)
{
    static const char more[] = ", …";
    size_t at = strlen(l->text);
    if (l->full)
        return;
    l->full = at + strlen(", ") + strlen(name) + sizeof more > sizeof l->text;
    snprintf(l->text + at, sizeof l->text - at, "%s%s", at ? ", " : "", l->full ? "…" : name);
}

bool dg_refuse_model(dg_http_error *e, const char *name, const dg_name_list *there)
{
    return dg_refuse(e, 404, "model_not_found", "model",
                     "model \"%.100s\" not found; there are: %s", name, there->text);
}

/* The field that the library found fault with, of those that only it can judge: its messages begin
 * with the name of the option. */
static const char *field_of(const char *message, const char *otherwise)
{
    static const char *const fields[][2] = {
        {"temperature is", "temperature"},
        {"temperatures run", "diffusion.t_min"},
        {"top_p is", "top_p"},
        {"max_tokens is", "max_tokens"},
        {"canvas_length is", "diffusion.canvas_length"},
        {"canvas: ", "diffusion.canvas"},
        {"a constraint goes with no canvas", "diffusion.canvas"},
        {"a constraint goes with no suffix", "suffix"},
        {"a read goes with no", "vllm_xargs.diffusion_read_only"},
        {"stop string", "stop"},
        {"stop token", "stop_token_ids"},
        {"tools", "tools"},
        {"adapter \"", "lora"},
        {"the scale of adapter", "lora"},
    };
    for (size_t i = 0; i < DG_COUNT(fields); i++)
        if (!strncmp(message, fields[i][0], strlen(fields[i][0])))
            return fields[i][1];
    return otherwise;
}

/* What is said of a file has its path in front, perhaps behind the step that met it, and no slash
 * further on, unless the path filled the message. So it can be called by its name without knowing
 * where the model's files lie, which dg_hide_folder would have to: the engine opened them. */
static const char *without_folder(const dgemma_error *err)
{
    const char *slash = strrchr(err->msg, '/');
    if (strlen(err->msg) + 1 == sizeof err->msg)
        return "a file of the model is not whole any more";
    return slash ? slash + 1 : err->msg;
}

bool dg_refuse_status(dg_http_error *e, const dgemma_error *err, const char *param)
{
    const char *field = field_of(err->msg, param);
    switch (err->status) {
    case DGEMMA_E_ARG:
    case DGEMMA_E_FORMAT: /* of a picture: the model's own files were read long ago */
        return dg_refuse(e, 400,
                         strstr(err->msg, "the shortest answer") ? "max_tokens_too_small"
                                                                 : "invalid_value",
                         field, "%s", err->msg);
    case DGEMMA_E_UNSUPPORTED:
        return dg_refuse(e, 400, "unsupported", field, "%s", err->msg);
    case DGEMMA_E_IO: /* a file of the model is not whole any more */
        return dg_refuse(e, 500, NULL, NULL, "%s", without_folder(err));
    case DGEMMA_E_CONTEXT:
        dg_refuse(e, 400, context_code, param, "%s", err->msg);
        e->n_context = err->n_context;
        e->n_prompt = err->n_prompt;
        return false;
    case DGEMMA_E_LIMIT:
        if (!strncmp(err->msg, too_complex, strlen(too_complex)))
            return dg_refuse(e, 400, "schema_too_complex", NULL, "%s", err->msg);
        return dg_refuse(e, 400, "limit_exceeded", field, "%s", err->msg);
    case DGEMMA_E_BUSY:
        dg_refuse(e, 429, "queue_full", NULL, "%s", err->msg);
        e->retry_after = 1;
        return false;
    case DGEMMA_E_NOMEM:
        dg_refuse(e, 503, "out_of_memory", NULL, "%s", err->msg);
        e->retry_after = 5;
        return false;
    default:
        return dg_refuse(e, 500, NULL, NULL, "%s", err->msg);
    }
}

void dg_hide_folder(char *words, const char *folder)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') /* as dg_path_join() does */
        n--;
    for (char *at = words; n && *at;) {
        if (strncmp(at, folder, n)) {
            at++;
            continue;
        }
        const char *behind = at + n + strspn(at + n, "/");
        if (behind[-1] == '/') /* it is followed by a name */
            memmove(at, behind, strlen(behind) + 1);
        else
            at += n;
    }
}

bool dg_error_is_context(const dg_http_error *e)
{
    return e->code && !strcmp(e->code, context_code);
}

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
        return "timeout_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

json_t *dg_error_object(const dg_http_error *e)
{
    json_t *param = e->param[0] ? dg_json_text(e->param, strlen(e->param)) : json_null();
    return json_pack("{s:{s:o,s:s,s:o,s:s?}}", "error", "message",
                     dg_json_text(e->message, strlen(e->message)), "type", type_of(e->status),
                     "param", param, "code", e->code);
}
