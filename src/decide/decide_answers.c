#include <math.h>
#include "base/real.h"
#include "decide/decide_internal.h"

void decide_softmax(double *p, double *mass, const double *logprob, size_t n, double temperature)
{
    double best = -INFINITY, sum = 0;
    *mass = 0;
    for (size_t i = 0; i < n; i++) {
        best = fmax(best, logprob[i]);
        *mass += dg_exp(logprob[i]);
    }
    for (size_t i = 0; i < n; i++) {
        p[i] = isinf(best) ? 1 : dg_exp((logprob[i] - best) / temperature);
        sum += p[i];
    }
    for (size_t i = 0; i < n; i++)
        p[i] /= sum;
}

size_t decide_turned(const decide_question *q, size_t i, size_t order)
{
    return q->kind == DGEMMA_QUESTION_CHOICE ? (i + order) % q->n_options : i;
}

double decide_entropy(const double *p, size_t n)
{
    double h = 0;
    for (size_t i = 0; i < n; i++)
        h -= p[i] > 0 ? p[i] * dg_log(p[i]) : 0;
    return fmax(h, 0);
}

void decide_average(dgemma_answer *a, double *mean, const double *const *reads, const double *mass,
                    size_t n_reads, size_t n)
{
    *a = (dgemma_answer){.probability = mean, .n_options = n, .n_reads = (int)n_reads};
    for (size_t i = 0; i < n; i++) {
        mean[i] = 0;
        for (size_t k = 0; k < n_reads; k++)
            mean[i] += reads[k][i];
        mean[i] /= (double)n_reads;
        a->score += (double)i * mean[i];
        a->best = mean[i] > mean[a->best] ? i : a->best;
    }
    double next = 0, spread = 0;
    for (size_t i = 0; i < n; i++)
        next = i != a->best ? fmax(next, mean[i]) : next;
    for (size_t k = 0; k < n_reads; k++) {
        double off = reads[k][a->best] - mean[a->best];
        spread += off * off;
        a->label_mass += mass[k] / (double)n_reads;
    }
    a->confidence = mean[a->best] - next;
    a->entropy = decide_entropy(mean, n);
    if (n_reads > 1)
        a->standard_error = sqrt(spread / (double)(n_reads - 1) / (double)n_reads);
}
