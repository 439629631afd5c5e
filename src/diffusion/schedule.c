#include "diffusion/schedule.h"

float dg_schedule_temperature(const dg_diffusion_options *opt, int n_left)
{
    return opt->t_min + (opt->t_max - opt->t_min) * ((float)n_left / (float)opt->max_steps);
}
