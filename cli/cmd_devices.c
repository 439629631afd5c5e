/* dgemma devices: what --device can name on this machine. */
#include "cli.h"
#include "dgemma_tools.h"

static const char usage[] = "usage: dgemma devices\n\nLists what a model can run on here, by the "
                            "name that --device takes.\n";

int cmd_devices(int argc, char **argv)
{
    bool help = false;
    const cli_option options[] = {
        {0, "options", NULL, NULL, NULL, NULL},
        {'h', "help", NULL, "this text", cli_set_switch, &help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    if (!cli_parse("devices", options, n_option, argc, argv, NULL, 0, &n_rest))
        return EXIT_USAGE;
    if (help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    dgemma_device device[64];
    dgemma_error why = {0};
    size_t n = dgemma_devices(device, sizeof device / sizeof device[0], &why);
    for (size_t i = 0; i < n; i++) {
        printf("%-8s %s", device[i].name, device[i].description);
        if (device[i].total_bytes)
            printf(", %.1f of %.1f GiB free", (double)device[i].free_bytes / (1 << 30),
                   (double)device[i].total_bytes / (1 << 30));
        putchar('\n');
    }
    if (why.status)
        fprintf(stderr, "%s\n", why.msg);
    return EXIT_OK;
}
