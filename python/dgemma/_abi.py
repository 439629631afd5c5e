"""The structures of include/dgemma.h, field by field in its order.

A test compiles the header and compares sizes and offsets with these.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint8,
    c_uint64, c_void_p,
)

# dgemma_status
OK = 0

# dgemma_event_kind
EVENT_PROMPT, EVENT_DRAFT, EVENT_BLOCK, EVENT_THINKING, EVENT_TEXT, EVENT_TOOL_CALL, EVENT_READ, EVENT_END = range(8)

# dgemma_end, by its number
END_NAMES = ("stop", "length", "context", "tool_calls", "cancelled", "failed")

# dgemma_tool_choice
TOOL_CHOICES = {"auto": 0, "none": 1, "required": 2}
TOOLS_NAMED = 3

# dgemma_constraint_kind
CONSTRAINT_SCHEMA, CONSTRAINT_OBJECT, CONSTRAINT_REGEX, CONSTRAINT_CHOICE, CONSTRAINT_GRAMMAR = range(5)

# dgemma_question_kind
YES_NO, CHOICE, SCORE = range(3)


class Error(Structure):
    _fields_ = [("status", c_int), ("msg", c_char * 512), ("n_context", c_size_t), ("n_prompt", c_size_t)]


ProgressFn = CFUNCTYPE(c_bool, c_void_p, c_double)


class Adapter(Structure):
    _fields_ = [("name", c_char_p), ("path", c_char_p), ("scale", c_float)]


class EngineOptions(Structure):
    _fields_ = [
        ("model_path", c_char_p),
        ("n_threads", c_int),
        ("context_length", c_int),
        ("kv_type", c_int),
        ("device", c_char_p),
        ("cpu", c_char_p),
        ("profile", c_char_p),
        ("weights", c_char_p),
        ("chat_template", c_char_p),
        ("mmproj", c_char_p),
        ("adapters", POINTER(Adapter)),
        ("n_adapters", c_size_t),
        ("image_attention", c_int),
        ("max_running", c_int),
        ("queue_length", c_int),
        ("kv_bytes", c_size_t),
        ("gpu_bytes", c_size_t),
        ("picture_bytes", c_size_t),
        ("no_prefix_cache", c_bool),
        ("on_progress", ProgressFn),
        ("progress_user", c_void_p),
    ]


class ModelInfo(Structure):
    _fields_ = [
        ("n_vocab", c_int),
        ("n_layer", c_int),
        ("n_embd", c_int),
        ("n_expert", c_int),
        ("n_expert_used", c_int),
        ("context_length", c_int),
        ("canvas_length", c_int),
        ("format", c_char_p),
        ("has_tokenizer", c_bool),
        ("has_vision", c_bool),
        ("vision_ignored", c_char_p),
        ("has_chat_template", c_bool),
        ("chat_template", c_char_p),
        ("foreign_template", c_bool),
        ("backend", c_char_p),
        ("numerics", c_char_p),
        ("n_threads", c_int),
        ("gpu_address", c_char_p),
        ("weight_bytes", c_size_t),
        ("work_bytes", c_size_t),
        ("request_bytes", c_size_t),
        ("kv_bytes_full", c_size_t),
        ("kv_bytes", c_size_t),
    ]


class ConstraintOptions(Structure):
    pass


ConstraintOptions._fields_ = [
    ("kind", c_int),
    ("text", c_char_p),
    ("text_len", c_size_t),
    ("choices", POINTER(c_char_p)),
    ("n_choices", c_size_t),
    ("compact", c_bool),
    ("lenient", c_bool),
    ("tool_choice", c_int),
    ("single_tool_call", c_bool),
    ("answer", POINTER(ConstraintOptions)),
]


class Step(Structure):
    _fields_ = [
        ("block", c_int),
        ("step", c_int),
        ("n", c_int),
        ("finished", c_bool),
        ("canvas", POINTER(c_int32)),
        ("argmax", POINTER(c_int32)),
        ("entropy", POINTER(c_float)),
        ("accepted", POINTER(c_uint8)),
    ]


StepFn = CFUNCTYPE(c_bool, c_void_p, POINTER(Step))


class Media(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("data", c_char_p),
        ("size", c_size_t),
        ("video", c_bool),
        ("max_soft_tokens", c_int),
    ]


class LogitBias(Structure):
    _fields_ = [("token", c_int32), ("bias", c_float)]


class AdapterUse(Structure):
    _fields_ = [("adapter", c_int), ("scale", c_float)]


class RequestOptions(Structure):
    _fields_ = [
        ("chat_prompt", c_char_p),
        ("messages", c_char_p),
        ("raw_prompt", c_char_p),
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_size_t),
        ("prompt", c_void_p),
        ("media", POINTER(Media)),
        ("n_media", c_size_t),
        ("image_tokens", c_int),
        ("system", c_char_p),
        ("tools", c_char_p),
        ("tool_choice", c_int),
        ("tool_name", c_char_p),
        ("single_tool_call", c_bool),
        ("answer_prefix", c_char_p),
        ("thinking", c_bool),
        ("thinking_budget", c_int),
        ("cache_salt", c_char_p),
        ("adapters", POINTER(AdapterUse)),
        ("n_adapters", c_size_t),
        ("constraint", c_void_p),
        ("suffix", c_char_p),
        ("passage", c_char_p),
        ("instruction", c_char_p),
        ("keep_length", c_bool),
        ("canvas", POINTER(c_int32)),
        ("pinned", POINTER(c_uint8)),
        ("n_canvas", c_size_t),
        ("strength", c_float),
        ("seed", c_uint64),
        ("max_tokens", c_int),
        ("stop", POINTER(c_char_p)),
        ("n_stop", c_size_t),
        ("stop_tokens", POINTER(c_int32)),
        ("n_stop_tokens", c_size_t),
        ("temperature", c_float),
        ("top_k", c_int),
        ("top_p", c_float),
        ("min_p", c_float),
        ("logit_bias", POINTER(LogitBias)),
        ("n_logit_bias", c_size_t),
        ("n_logprobs", c_int),
        ("settled_steps", c_int),
        ("max_denoise_steps", c_int),
        ("t_min", c_float),
        ("t_max", c_float),
        ("entropy_bound", c_float),
        ("stability_threshold", c_int),
        ("confidence_threshold", c_float),
        ("canvas_length", c_int),
        ("read", c_void_p),
        ("drafts", c_bool),
        ("on_step", StepFn),
        ("step_user", c_void_p),
    ]


class Stats(Structure):
    _fields_ = [
        ("end", c_int),
        ("stop_string", c_int),
        ("n_prompt_cached", c_int),
        ("n_prompt", c_int),
        ("n_output", c_int),
        ("n_thinking", c_int),
        ("n_pictures", c_int),
        ("n_pictures_encoded", c_int),
        ("n_blocks", c_int),
        ("n_converged", c_int),
        ("n_steps", c_int),
        ("n_tries", c_int),
        ("agreement", c_float),
        ("resistance", c_float),
        ("n_positions", c_uint64),
        ("queue_seconds", c_double),
        ("prompt_seconds", c_double),
        ("denoise_seconds", c_double),
        ("first_text_seconds", c_double),
        ("kv_bytes", c_size_t),
    ]


class Event(Structure):
    _fields_ = [
        ("kind", c_int),
        ("n_done", c_int),
        ("n_total", c_int),
        ("block", c_int),
        ("step", c_int),
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_size_t),
        ("stop_token", c_bool),
        ("entropy", POINTER(c_float)),
        ("accepted", POINTER(c_uint8)),
        ("pinned", POINTER(c_uint8)),
        ("n_gap", c_int),
        ("trying", c_bool),
        ("mean_entropy", c_float),
        ("resistance", c_float),
        ("converged", c_bool),
        ("n_canvas", c_int),
        ("seconds", c_double),
        ("logprobs", POINTER(c_float)),
        ("top_tokens", POINTER(c_int32)),
        ("top_logprobs", POINTER(c_float)),
        ("n_top", c_int),
        ("text", POINTER(c_char)),
        ("text_len", c_size_t),
        ("broken_call", c_bool),
        ("tool_name", c_char_p),
        ("tool_index", c_int),
        ("status", c_int),
        ("stats", Stats),
    ]


class Option(Structure):
    _fields_ = [("name", c_char_p), ("description", c_char_p)]


class Question(Structure):
    _fields_ = [("kind", c_int), ("text", c_char_p), ("options", POINTER(Option)), ("n_options", c_size_t)]


class DecideOptions(Structure):
    _fields_ = [
        ("state", c_char_p),
        ("messages", c_char_p),
        ("media", POINTER(Media)),
        ("n_media", c_size_t),
        ("image_tokens", c_int),
        ("questions", POINTER(Question)),
        ("n_questions", c_size_t),
        ("seed", c_uint64),
        ("samples", c_int),
        ("orders", c_int),
        ("steps", c_int),
        ("think", c_int),
        ("independent", c_bool),
        ("temperature", c_double),
        ("cache_salt", c_char_p),
        ("adapters", POINTER(AdapterUse)),
        ("n_adapters", c_size_t),
    ]


class Answer(Structure):
    _fields_ = [
        ("probability", POINTER(c_double)),
        ("n_options", c_size_t),
        ("best", c_size_t),
        ("score", c_double),
        ("confidence", c_double),
        ("label_mass", c_double),
        ("entropy", c_double),
        ("standard_error", c_double),
        ("n_reads", c_int),
    ]


# What each is called in the header.
STRUCTURES = {
    "dgemma_error": Error,
    "dgemma_engine_options": EngineOptions,
    "dgemma_adapter": Adapter,
    "dgemma_adapter_use": AdapterUse,
    "dgemma_model_info": ModelInfo,
    "dgemma_constraint_options": ConstraintOptions,
    "dgemma_step": Step,
    "dgemma_media": Media,
    "dgemma_logit_bias": LogitBias,
    "dgemma_request_options": RequestOptions,
    "dgemma_stats": Stats,
    "dgemma_event": Event,
    "dgemma_option": Option,
    "dgemma_question": Question,
    "dgemma_decide_options": DecideOptions,
    "dgemma_answer": Answer,
}
