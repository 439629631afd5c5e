#include "errors.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "json_text.h"

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

bool dg_refuse_status(dg_http_error *e, const dgemma_error *err)
{
    switch (err->status) {
    case DGEMMA_E_ARG:
    case DGEMMA_E_FORMAT: /* of a picture: the model's own files were read long ago */
        return dg_refuse(e, 400, "invalid_value", NULL, "%s", err->msg);
    case DGEMMA_E_UNSUPPORTED:
        return dg_refuse(e, 400, "unsupported", NULL, "%s", err->msg);
    case DGEMMA_E_CONTEXT:
    case DGEMMA_E_LIMIT: /* a full queue is refused before the library is asked */
        return dg_refuse(e, 400, "context_length_exceeded", NULL, "%s", err->msg);
    case DGEMMA_E_NOMEM:
        dg_refuse(e, 503, "out_of_memory", NULL, "%s", err->msg);
        e->retry_after = 5;
        return false;
    default:
        return dg_refuse(e, 500, NULL, NULL, "%s", err->msg);
    }
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
    return json_pack("{s:{s:o,s:s,s:s?,s:s?}}", "error", "message",
                     dg_json_text(e->message, strlen(e->message)), "type", type_of(e->status),
                     "param", e->param[0] ? e->param : NULL, "code", e->code);
}
