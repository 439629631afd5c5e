/* dgemma: one program, a file for each subcommand. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", cmd_run, "answer one prompt"},
    {"chat", cmd_chat, "talk with a model and watch the canvas settle"},
    {"serve", cmd_serve, "answer requests over HTTP, as OpenAI's API has them"},
    {"batch", cmd_batch, "answer the requests of a file, as OpenAI's batches have them"},
    {"inspect", cmd_inspect, "what is in a model file, and the memory it takes"},
    {"tokenize", cmd_tokenize, "text to token ids, and back"},
    {"infill", cmd_infill, "write what is missing between two texts"},
    {"edit", cmd_edit, "write a passage of a text anew"},
    {"constrain", cmd_constrain, "which texts a schema or a grammar allows"},
    {"decide", cmd_decide, "answer questions with labels, and how likely they are"},
    {"devices", cmd_devices, "what a model can run on here"},
    {"bench", cmd_bench, "how fast a model runs here, and how fast it could"},
    {"quantize", cmd_quantize, "write a model with weights of other types"},
    {"imatrix", cmd_imatrix, "find out which inputs matter, for quantize"},
    {"synth", cmd_synth, "make a model with random weights, to measure speed with"},
    {"verify", cmd_verify, "hold what a model computes to a reference"},
};

typedef int command(int argc, char **argv);

static command *find(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(name, commands[i].name))
            return commands[i].run;
    fprintf(stderr, "dgemma: there is no command \"%s\"; dgemma --help lists them\n", name);
    return NULL;
}

static void print_help(FILE *out)
{
    fputs("dgemma " DGEMMA_VERSION
          ": runs DiffusionGemma, a language model that writes by denoising\n\n"
          "usage: dgemma COMMAND [OPTION]...\n\ncommands\n",
          out);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\ndgemma help COMMAND tells more; dgemma --version prints the version.\n", out);
}

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("dgemma %s\n", dgemma_version());
        return EXIT_OK;
    }
    if (!strcmp(name, "help") && argc > 2) {
        command *of = find(argv[2]);
        return of ? of(2, (char *[]){argv[2], "--help", NULL}) : EXIT_USAGE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(argc > 1 ? stdout : stderr);
        return argc > 1 ? EXIT_OK : EXIT_USAGE;
    }
    command *named = find(name);
    return named ? named(argc - 1, argv + 1) : EXIT_USAGE;
}

/* What is opened where a standard descriptor is closed, a file or a socket, would take what is
 * printed. Nothing can be written here, so that output that has nowhere to go is still a failure.
 */
static bool open_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* An answer that did not reach its file, because the disk is full, is a failure. */
int main(int argc, char **argv)
{
    if (!open_standard_descriptors())
        return EXIT_FAILED;
    int code = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fputs("dgemma: standard output cannot be written\n", stderr);
    return code ? code : EXIT_FAILED;
}
