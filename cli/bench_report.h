/* What dgemma bench finds, for people and for programs. */
#ifndef DG_CLI_BENCH_REPORT_H
#define DG_CLI_BENCH_REPORT_H

#include <stdio.h>
#include "dgemma_tools.h"

typedef struct bench_report {
    FILE *out;
    bool json;
    size_t n_told;

    /* what later lines are held against */
    double read_rate, best_rate;
    const char *best_name;
    double step; /* seconds, the last one */
    double stages;
    bool in_table;
} bench_report;

void bench_report_begin(bench_report *r, FILE *out, bool json);
void bench_report_tell(bench_report *r, const dgemma_bench_result *found);
void bench_report_end(bench_report *r);

#endif
