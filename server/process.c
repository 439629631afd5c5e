#include "process.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Everything behind the name, which stands in brackets and may have any character in it; "" at
 * worst. */
static const char *behind_name(char *text, size_t size)
{
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *bracket = strrchr(text, ')');
    return bracket ? bracket + 1 : "";
}

static double now(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) ? -1 : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Memory, threads and the start, of which the system knows how long after its own it was. */
static void read_stat(dg_process *p)
{
    char text[1024];
    long n_thread, n_page;
    unsigned long long ticks, bytes;
    /* proc(5), fields 3 to 24 */
    int n = sscanf(behind_name(text, sizeof text),
                   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d "
                   "%llu %llu %ld",
                   &n_thread, &ticks, &bytes, &n_page);
    if (n != 4)
        return;
    p->n_thread = (double)n_thread;
    p->virtual_bytes = (double)bytes;
    p->resident_bytes = (double)n_page * (double)sysconf(_SC_PAGESIZE);
    p->started =
        now(CLOCK_REALTIME) - now(CLOCK_BOOTTIME) + (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double count_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return -1;
    int n = -3; /* ".", ".." and the folder itself */
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

void dg_process_read(dg_process *p)
{
    struct rlimit files;
    *p = (dg_process){.resident_bytes = -1, .virtual_bytes = -1, .n_thread = -1, .started = -1};
    read_stat(p);
    p->cpu_seconds = now(CLOCK_PROCESS_CPUTIME_ID);
    p->n_open = count_files();
    p->max_open = getrlimit(RLIMIT_NOFILE, &files) ? -1 : (double)files.rlim_cur;
}
