/* Ceilings for what a config may ask for, wherever it comes from: far above any model of the
 * architecture, low enough that a product of two head or expert sizes stays inside an int. */
#ifndef DG_MODEL_CONFIG_LIMITS_H
#define DG_MODEL_CONFIG_LIMITS_H

enum {
    MAX_SIZE = 1 << 24,
    MAX_HEADS = 1 << 12,
    MAX_HEAD_DIM = 1 << 13,
    MAX_EXPERTS = 1 << 16,
    MAX_CONTEXT = 1 << 27,
    MAX_CANVAS = 1 << 16,
    MAX_STEPS = 1 << 16,
    MAX_STABILITY = 1 << 10,
    MAX_PATCH = 1 << 8,
    MAX_POOL = 1 << 4,
    MAX_POSITIONS = 1 << 20,
    MAX_SOFT = 1120, /* the largest budget that the published processor knows */
    MAX_DOCUMENT = 1 << 20,
};

#endif
